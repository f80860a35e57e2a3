"""Paths that code puts together of constants, and somebody's home as it names it, are read as one path."""

from __future__ import annotations

import pytest

from tests.engine.derived.declared import shown

HOME = [
    "shutil.rmtree(Path.home())",
    "shutil.rmtree(pathlib.Path.home(), ignore_errors=True)",
    'shutil.rmtree(os.environ["HOME"])',
    "shutil.rmtree(os.environ.get('HOME'))",
    "shutil.rmtree(os.getenv('HOME'))",
    "fs.rmSync(os.homedir(), {recursive: true})",
    "require('fs').rmSync(require('os').homedir(), {recursive: true})",
    "fs.rmSync(process.env.HOME, {recursive: true})",
    "FileUtils.rm_rf(Dir.home)",
    "FileUtils.rm_rf(ENV['HOME'])",
    "for each in Path.home().iterdir():\n    shutil.rmtree(each)",
]
READ = [
    'open(Path.home() / ".ssh" / "id_rsa").read()',
    '(Path.home() / ".ssh/id_rsa").read_text()',
    'open(os.path.join(os.path.expanduser("~"), ".ssh", "id_rsa")).read()',
    "open(os.path.join(os.environ['HOME'], '.ssh', 'id_rsa')).read()",
    'open(os.path.join(Path.home(), ".ssh", "id_rsa",)).read()',
    "open(f\"{os.environ['HOME']}/.ssh/id_rsa\").read()",
    'fs.readFileSync(path.join(os.homedir(), ".ssh", "id_rsa"))',
    "fs.readFileSync(path.resolve(process.env.HOME, '.ssh/id_rsa'))",
    "fs.readFileSync(`${process.env.HOME}/.ssh/id_rsa`)",
    "fs.readFileSync(`${os.homedir()}/.ssh/id_rsa`)",
    'File.read(File.join(Dir.home, ".ssh", "id_rsa"))',
    'File.read("#{Dir.home}/.ssh/id_rsa")',
]


@pytest.mark.parametrize("code", HOME)
def test_the_home_that_code_deletes_is_shown(code: str) -> None:
    found = shown("execute_python", {"code": code}, "deletes")
    assert {"~", "~/**/?*"} & set(found), found


@pytest.mark.parametrize("code", READ)
def test_a_path_of_several_parts_is_one(code: str) -> None:
    assert "~/.ssh/id_rsa" in shown("execute_python", {"code": code}, "reads")
    command = f"python3 - <<'END'\n{code}\nEND"
    assert "~/.ssh/id_rsa" in shown("Bash", {"command": command}, "reads")


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ('shutil.rmtree(Path("/home/ana") / "shop" / "build")', "/home/ana/shop/build"),
        ('shutil.rmtree(Path("/home/ana").joinpath("build"))', "/home/ana/build"),
        ("fs.rmSync(path.join('/srv', 'shop'), {recursive: true})", "/srv/shop"),
        ('shutil.rmtree(os.path.join("/home", ".."))', "/"),
        ('shutil.rmtree(Path("/home") / "..")', "/"),
        # What is put behind may lead elsewhere, or is not known.
        ('shutil.rmtree(Path("/home") / "/etc")', "/home"),
        ('shutil.rmtree(Path("/home") / "")', "/home"),
        ('shutil.rmtree(Path("/home") / "\\x2e")', "/home"),
        ('shutil.rmtree(Path("/home") / name)', "/home"),
        # Nothing is hidden by what looks like a part.
        ("shutil.rmtree('/'); print('x')", "/"),
        ('shutil.rmtree(Path("/", "./"))', "/"),
        ('shutil.rmtree(Path("/").joinpath(".."))', "/"),
        ('a = "Path("; b = ")/"; shutil.rmtree("/home")', "/home"),
        ('a = "path.join("; b = ", "; shutil.rmtree("/home", ")")', "/home"),
        ('a = "b"; shutil.rmtree("/home")', "/home"),
        ('print("a", "rm"); shutil.rmtree("/home")', "/home"),
        ('x["file"] = "open"; shutil.rmtree("/home")', "/home"),
        ('a = "find"; [os.remove(each) for each in os.scandir("/home")]', "/home"),
        ('a = "copy"; os.rename("/home", "/x")', "/home"),
        ('a = "process.env.HOME"; shutil.rmtree("/home")', "/home"),
    ],
)
def test_what_is_deleted_is_shown(code: str, path: str) -> None:
    assert path in shown("execute_python", {"code": code}, "deletes")


@pytest.mark.parametrize(
    "code",
    [
        "shutil.rmtree(Path.home() / name)",
        "shutil.rmtree(os.environ['HOME'] + name)",
        "shutil.rmtree(os.path.join(os.environ['HOME'], name))",
        "home = Path.home()\nshutil.rmtree(home / 'x')",
    ],
)
def test_a_home_alone_is_not_meant_by_what_lies_in_it(code: str) -> None:
    assert "~" not in shown("execute_python", {"code": code}, "deletes")


@pytest.mark.parametrize("program", ["node -e", "bun -e", "bun --eval", "deno eval"])
def test_other_programs_of_javascript_run_code(program: str) -> None:
    command = f"""{program} 'require("fs").rmSync("/srv/shop", {{recursive: true}})'"""
    assert shown("Bash", {"command": command}, "deletes") == ["/srv/shop"]


@pytest.mark.parametrize("command", ["bun run build", "bun install", "bun test src", "deno task dev"])
def test_what_else_they_do_reads_no_files_of_ours(command: str) -> None:
    assert shown("Bash", {"command": command}, "deletes") == []
