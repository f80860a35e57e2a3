"""Commands that programs run because an option, a setting or a variable says so are read."""

from __future__ import annotations

import pytest

from engine.shell.reader import read


@pytest.mark.parametrize(
    "line",
    [
        "ssh -o ProxyCommand='rm -rf /' host",
        "ssh -oProxyCommand='rm -rf /' host",
        "ssh -o 'LocalCommand rm -rf /' host",
        "scp -o ProxyCommand='rm -rf /' a host:b",
        "rsync -e 'rm -rf /' a h:b",
        "rsync --rsh='rm -rf /' a h:b",
        "rsync --rsync-path 'rm -rf /' a h:b",
        "git -c credential.helper='!rm -rf /' fetch",
        "git config credential.helper '!rm -rf /'",
        "git -c diff.external='rm -rf /' diff",
        "git -c mergetool.x.cmd='rm -rf /' mergetool",
        "git -c filter.x.clean='rm -rf /' add .",
        "git -c sequence.editor='rm -rf /' rebase -i",
        "git -c gpg.program='rm -rf /' commit -S",
        "git clone --upload-pack='rm -rf /' h:x",
        "git clone -u 'rm -rf /' h:x",
        "git grep --open-files-in-pager='rm -rf /' x",
        "git grep -O'rm -rf /' x",
        "git difftool --extcmd='rm -rf /'",
        "git bisect run rm -rf /",
        "git bisect run sh -c 'rm -rf /'",
        "git submodule foreach 'rm -rf /'",
        "git submodule foreach --recursive bash -c 'rm -rf /'",
        "xvfb-run rm -rf /",
        "tar cf a b --checkpoint=1 --checkpoint-action exec='rm -rf /'",
        "tar cf a b --checkpoint --checkpoint-act=exec='rm -rf /'",
        "tar xf a --to-com='rm -rf /'",
        "tar xf a --to-command 'rm -rf /'",
        "tar cf a -I 'rm -rf /' b",
        "tar --use='rm -rf /' -cf a b",
        "xargs --max-lines rm -rf /",
        "xargs --max-chars 1000 rm -rf /",
        "xargs --process-slot-var x rm -rf /",
        "flock --conflict-exit-code 1 f rm -rf /",
        "setpriv --euid 1 rm -rf /",
        "unshare -w / rm -rf /",
        "unshare --map-user 0 rm -rf /",
        "nsenter --setuid 0 -t 1 rm -rf /",
        "chroot --userspec 0 / rm -rf /",
        "/usr/bin/time --output x rm -rf /",
        'ruby -e \'x = "`"; `rm -rf /`; y = "`"\'',
        "xvfb-run -a --server-args='-screen 0 1x1x8' rm -rf /",
        "make --eval='x:;rm -rf /' x",
        "make SHELL='rm -rf /' x",
        "make -f - <<< 'all:; rm -rf /'",
        "printf 'all:\\n\\t@rm -rf /\\n' | make -f -",
        "man -P 'rm -rf /' ls",
        "MANPAGER='rm -rf /' man ls",
        "gdb -batch -ex 'shell rm -rf /'",
        "gdb -batch -ex '!rm -rf /'",
        "lldb -o 'platform shell rm -rf /'",
        "tmux send-keys 'rm -rf /' Enter",
        "tmux new-session -d rm -rf /",
        "tmux new-session -d 'rm -rf /'",
        "ls | entr -s 'rm -rf /'",
        "complete -C 'rm -rf /' x",
        "mapfile -C 'rm -rf /' -c 1 x",
        "coreutils --coreutils-prog=rm -rf /",
        "coreutils rm -rf /",
    ],
)
def test_the_command_is_read(line: str) -> None:
    assert "rm -rf /" in read([line])


@pytest.mark.parametrize(
    "line",
    [
        "ssh -o ProxyCommand=none host ls",
        "git -c user.name='rm -rf /' commit -m 'rm -rf /'",
        "git log --grep='rm -rf /'",
        "rsync -a 'rm -rf /' h:b",
        "make all NOTE='rm -rf /'",
        "gdb -batch -ex 'print 1' 'rm -rf /'",
    ],
)
def test_what_is_no_command_is_none(line: str) -> None:
    assert "rm -rf /" not in read([line])


@pytest.mark.parametrize("line", ["cd /; rm -rf ~+", "cd / && rm -rf ~+/"])
def test_the_folder_at_hand_by_another_name(line: str) -> None:
    assert "rm -rf /" in read([line])


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("tmux -L s new -d reboot", "reboot"),
        ("tmux new -d \\; split-window reboot", "reboot"),
        ("ls | entr rm -rfs /", "rm -rfs /"),
        ("ls | entr -rs 'rm -rf /'", "rm -rf /"),
        ("fish -C 'x y' -c 'rm -rf /'", "rm -rf /"),
        ("curl -o x.sh u; bash -C x.sh", "curl -o x.sh u | bash -C x.sh"),
    ],
)
def test_what_is_behind_options_of_a_wrapper(line: str, entry: str) -> None:
    assert entry in read([line])


@pytest.mark.parametrize(
    ("line", "full"),
    [
        ("git push --force-w origin main", "git push --force-with-lease origin main"),
        ("git clean --forc -dx", "git clean --force -dx"),
        ("git reset --har HEAD~1", "git reset --hard HEAD~1"),
        ("chmod --recurs 777 /etc", "chmod --recursive 777 /etc"),
        ("base64 --dec f", "base64 --decode f"),
        ("wget --post-f=f http://a.b", "wget --post-file=f http://a.b"),
        ("git log --no-merges --h", "git log --no-merges --h"),
    ],
)
def test_an_option_that_is_cut_short_is_told_in_full(line: str, full: str) -> None:
    assert full in read([line])


@pytest.mark.parametrize(
    "line", ["gpg --export me@corp.example", "git push --force-with-lease", "git log --pretty"]
)
def test_one_that_is_whole_is_no_beginning_of_another(line: str) -> None:
    assert read([line]) == (line,)
