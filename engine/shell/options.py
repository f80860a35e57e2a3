"""The options of a command, read as getopt reads them: `-so F`, `-oF`, `--output=F`, `--outp F` are one.

One table says for each program which options take a value, and what the value is: a file that is read or
written, a place that is talked to. An option that is not in it takes no value here, so that what follows
counts as an operand: one too many is told of rather than one too few. Knows nothing of files or hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple


class Given(NamedTuple):
    """An option, by its long name where it has one, with its value; or an operand, which has no `name`.
    `marks` are those of the table."""

    name: str
    value: str
    marks: str = ""


class _Options(NamedTuple):
    letters: Mapping[str, Given]
    names: Mapping[str, Given]
    with_value: re.Pattern[str]


LONGEST_NAME: Final = 64
_SINGLE_DASH: Final = frozenset(["openssl", "sqlite3"])
"""Programs whose long options have one dash, and are written out."""


def given(program: str, words: Sequence[str], most: int | None = None) -> Iterator[Given]:
    """The options and operands in order. After `most` operands all words are operands."""
    if program not in TABLE:
        program = ""  # which may be any text of a call, and what is meant by options is remembered by it
    table = options_of(program)
    at = count = 0
    while at < len(words):
        word = words[at]
        at += 1
        if count == most or word == "--":
            yield from (Given("", each) for each in words[at - (count == most) :])
            return
        if word[:1] != "-" or word == "-":
            count += 1
            yield Given("", word)
            continue
        for option, value in _long(program, word) if _is_long(program, word) else _cluster(table, word):
            if value is None and "?" not in option.marks:
                at += "2" in option.marks
                value = words[at] if at < len(words) else ""
                at += 1
            yield option._replace(value=value or "")


def operands_of(items: Sequence[Given]) -> list[str]:
    return [each.value for each in items if not each.name and each.value]


def values_of(items: Sequence[Given], name: str) -> list[str]:
    return [each.value for each in items if each.name == name]


def has_mark(items: Sequence[Given], mark: str) -> bool:
    return any(mark in each.marks for each in items)


def _is_long(program: str, word: str) -> bool:
    return word.startswith("--") or program in _SINGLE_DASH


def _long(program: str, word: str) -> Iterator[tuple[Given, str | None]]:
    name, equals, value = word.lstrip("-").partition("=")
    option = _meant(program, name) if len(name) <= LONGEST_NAME else Given(name, "", "!")
    yield option, value if equals or "!" in option.marks else None


@lru_cache(maxsize=1024)
def _meant(program: str, name: str) -> Given:
    """The option of a name, or of the beginning of one."""
    names = options_of(program).names
    if name in names or not name or program in _SINGLE_DASH:
        return names.get(name, Given(name, "", "!"))
    found = sorted(full for full in names if full.startswith(name))
    alone = found and all(full.startswith(found[0]) for full in found)
    return names[found[0]] if alone else Given(name, "", "!")


def _cluster(table: _Options, word: str) -> Iterator[tuple[Given, str | None]]:
    """`-xvfF`: letters up to the first that takes a value, which is the rest or the next word."""
    last = table.with_value.search(word, 1)
    for letter in dict.fromkeys(word[1 : last.start() if last else len(word)]):
        yield table.letters.get(letter, Given(letter, "", "!")), ""
    if last:
        yield table.letters[last[0]], word[last.end() :] or None


@cache
def _parsed(text: str) -> _Options:
    letters: dict[str, Given] = {}
    names: dict[str, Given] = {}
    for entry in text.split():
        short, _, rest = entry.partition(":")
        name = rest.rstrip(_MARKS)
        for letter in short:
            letters[letter] = Given(name or letter, "", rest[len(name) :])
        if name:
            names[name] = Given(name, "", rest[len(name) :])
    valued = "".join(letter for letter, option in letters.items() if "!" not in option.marks)
    return _Options(letters, names, re.compile(f"[{re.escape(valued)}]" if valued else r"(?!)"))


def options_of(program: str) -> _Options:
    return _parsed(TABLE.get(program, ""))


_MARKS: Final = "<>@^~!?%2"
_GREP: Final = (
    "e:regexp% f:file%< A:after-context B:before-context C:context m:max-count d:directories D:devices "
    ":include :exclude :exclude-dir :exclude-from< :label"
)
_AWK: Final = "F:field-separator v:assign f:file%< e:source% i:include E:exec%<"
_COPY: Final = "t:target-directory> T:no-target-directory! S:suffix m:mode o:owner g:group"
_SSH: Final = "J:~ W:~ o: F: i: bcDeEIlLmOpPQRSwBsX:"
_SERVER: Final = "h:host~ p:port"
_POSTGRES: Final = f"{_SERVER} U:username d:dbname c:command f:file v:set t:table n:schema o:output>"
_MYSQL: Final = (
    "h:host~ P:port u:user p:password? D:database e:execute S:socket :defaults-file r:result-file>"
)
_CURL: Final = (
    "A:user-agent b:cookie^ c:cookie-jar> C:continue-at d:data@ D:dump-header> e:referer E:cert F:form@ "
    "h:help? H:header@ K:config m:max-time o:output> P:ftp-port Q:quote r:range t:telnet-option "
    "T:upload-file< u:user U:proxy-user w:write-out@ x:proxy~ X:request y:speed-time Y:speed-limit "
    "z:time-cond :abstract-unix-socket :alt-svc> :aws-sigv4 :cacert :capath :cert-type :ciphers "
    ":connect-timeout :connect-to :create-file-mode :crlf! :crlfile :curves :data-ascii@ :data-binary@ "
    ":data-raw :data-urlencode@ :delegation :dns-interface :dns-ipv4-addr :dns-ipv6-addr :dns-servers "
    ":doh-url~ :egd-file :engine :etag-compare< :etag-save> :expect100-timeout :form-string :ftp-account "
    ":ftp-alternative-to-user :ftp-method :ftp-ssl-ccc! :ftp-ssl-ccc-mode :happy-eyeballs-timeout-ms "
    "I:head! :hostpubmd5 :hostpubsha256 :hsts :interface :json@ :keepalive-time :key :key-type :krb "
    ":libcurl> :limit-rate :local-port :login-options :mail-auth :mail-from :mail-rcpt :max-filesize "
    ":max-redirs n:netrc! :netrc-file :noproxy :oauth2-bearer :output-dir> Z:parallel! :parallel-max :pass "
    ":pinnedpubkey :preproxy~ :proto :proto-default :proto-redir :proxy-cacert :proxy-capath :proxy-cert "
    ":proxy-cert-type :proxy-ciphers :proxy-crlfile :proxy-header :proxy-key :proxy-key-type :proxy-pass "
    ":proxy-pinnedpubkey :proxy-service-name :proxy-tls13-ciphers :proxy-tlsauthtype :proxy-tlspassword "
    ":proxy-tlsuser :proxy1.0~ :pubkey :random-file :rate :request-target :resolve :retry :retry-delay "
    ":retry-max-time :sasl-authzid :service-name :socks4~ :socks4a~ :socks5~ :socks5-gssapi! "
    ":socks5-gssapi-service :socks5-hostname~ :stderr> :tftp-blksize :tls-max :tls13-ciphers :tlsauthtype "
    ":tlspassword :tlsuser :trace> :trace-ascii> :unix-socket :url~ :url-query"
)
_WGET: Final = (
    "a:append-output> A:accept B:base~ D:domains e:execute i:input-file< I:include-directories l:level "
    "o:output-file> O:output-document> P:directory-prefix> Q:quota R:reject t:tries T:timeout U:user-agent "
    "w:wait X:exclude-directories :accept-regex :bind-address :body-data :body-file< :ca-certificate "
    ":ca-directory :certificate :certificate-type :ciphers :compression :config :connect-timeout :crl-file "
    ":cut-dirs :default-page :dns-timeout :exclude-domains :follow-tags :ftp-password :ftp-user :header "
    ":http-password :http-user :ignore-tags :load-cookies :local-encoding :method :password :pinnedpubkey "
    ":post-data :post-file< :prefer-family :private-key :private-key-type :progress :proxy-password "
    ":proxy-user :read-timeout :referer :regex-type :reject-regex :rejected-log> :remote-encoding "
    ":restrict-file-names :retry-on-http-error :save-cookies> :secure-protocol :start-pos :user :waitretry"
)
_REQUEST: Final = (
    "a:auth A:auth-type o:output> p:print P: s:style :bearer :boundary :cert :cert-key :ciphers "
    ":default-scheme :format-options :max-headers :max-redirects :pretty :proxy~ :response-charset "
    ":response-mime :session :session-read-only :ssl :timeout :verify"
)
_RSYNC: Final = (
    "e:rsh f:filter B:block-size M:remote-option T:temp-dir> :exclude :include :exclude-from< :include-from< "
    ":files-from< :password-file :log-file> :backup! :backup-dir> :partial! :partial-dir> :compare-dest "
    ":copy-dest :link-dest :rsync-path :port :timeout :bwlimit :chmod :chown :info :debug :out-format "
    ":max-size :min-size :max-delete :suffix :del! :delete! :remove-source-files! :address :log-format"
)
_TAR: Final = (
    "f:file C:directory T:files-from< X:exclude-from< b:blocking-factor g:listed-incremental> :exclude "
    "I:use-compress-program H:format N:newer K:starting-file L:tape-length V:label F:info-script :transform "
    ":strip-components :owner :group :mode :mtime :to-command :checkpoint? :checkpoint-action "
    ":rsh-command x:extract! "
    ":get! c:create! r:append! u:update! t:list! A:catenate! :remove-files! :delete! "
    "U:unlink-first! :recursive-unlink! :one-top-level? :exclude-tag :exclude-ignore :add-file O:to-stdout!"
)
TABLE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "ag"), _GREP),
    "rg": f"{_GREP} g:glob t:type T:type-not j:threads r:replace M:max-columns E:encoding :iglob :files!%",
    "sed": "e:expression% f:file%< i:in-place? l:line-length",
    "perl": "eE:% i:in-place? FMmIxD:?",
    "ruby": "e:% i:in-place? rIC: F:?",
    **dict.fromkeys(("python", "pypy"), "cm:% WXQ: :check-hash-based-pycs"),
    **dict.fromkeys(("node", "bun"), "e:eval% p:print% r:require C:conditions :import :loader :env-file"),
    "php": "rfBRFE:% cdzSt:",
    "lua": "e:% l:",
    **dict.fromkeys(("awk", "gawk", "mawk"), _AWK),
    **dict.fromkeys(("jq", "yq"), "f:from-file%< L: :indent :arg2 :argjson2 :slurpfile2< :rawfile2<"),
    "tr": "",
    "env": "u:unset C:chdir S:split-string",
    "sudo": "D:chdir u:user g:group p:prompt h:host C: r: t: T: R:chroot U:",
    "sort": "o:output> k:key t:field-separator S:buffer-size T:temporary-directory :files0-from< :parallel",
    **dict.fromkeys(("head", "tail"), "n:lines c:bytes s:sleep-interval :pid"),
    "cut": "d:delimiter f:fields c:characters b:bytes :output-delimiter",
    "uniq": "f:skip-fields s:skip-chars w:check-chars",
    "split": "b:bytes l:lines n:number a:suffix-length C:line-bytes :filter :additional-suffix t:separator",
    "csplit": "f:prefix> b:suffix-format n:digits",
    "base64": "w:wrap",
    "xxd": "clgso:",
    "gpg": "o:output> r:recipient u:local-user :homedir :passphrase :passphrase-file :keyserver~",
    "age": "o:output> r:recipient R:recipients-file< i:identity",
    **dict.fromkeys(("gzip", "gunzip", "pigz"), "S:suffix b: p:"),
    **dict.fromkeys(("xz", "unxz", "lzma"), "S:suffix F: C: T: M: :files< :files0<"),
    **dict.fromkeys(("zstd", "unzstd"), "o:> T: M: D: :output-dir-flat>"),
    "zip": "b:temp-path> n: t: tt: x:exclude i:include P: O:output-file> s: Z: m:move! d:delete!",
    "sqlite3": ":init< :cmd :separator :newline :nullvalue :vfs :mmap :lookaside2 :pagecache2 :maxsize :heap",
    "xargs": "a:arg-file< I:replace i:replace? d:delimiter E:eof L: :max-lines? n:max-args P: s: le:?",
    "patch": "i:input< p:strip d:directory o:output> r:reject-file> B:prefix D:ifdef F:fuzz V: z:suffix",
    "unzip": "d:> P:",
    **dict.fromkeys(("7z", "7za", "7zz"), "o:>?"),
    **dict.fromkeys(("vi", "vim", "nvim", "ex"), "c:command :cmd S:source< u: U: i: wW:scriptout> T:"),
    "ed": "p:prompt",
    "script": "c:command E:echo I:log-in> O:log-out> B:log-io> T:log-timing> m: o:output-limit t:timing?",
    "shuf": "o:output> n:head-count i:input-range :random-source<",
    "touch": "r:reference d:date t:",
    "truncate": "s:size r:reference",
    **dict.fromkeys(("make", "gmake"), "f:file :makefile C:directory j:jobs? l:load-average? o: W: I: :eval"),
    "mkdir": "m:mode",
    "mkfifo": "m:mode",
    "shred": "n:iterations s:size",
    **dict.fromkeys(("chmod", "chown", "chgrp"), ":reference% :from rwxXstugoa,+=:%!"),
    **dict.fromkeys(("cp", "mv", "ln"), _COPY),
    "install": f"{_COPY} d:directory!",
    "rsync": _RSYNC,
    **dict.fromkeys(("tar", "bsdtar"), _TAR),
    **dict.fromkeys(("ssh", "sftp", "scp"), _SSH),
    "mosh": "p:port :ssh",
    "git": "C: c: :git-dir :work-tree :namespace",
    "git clean": "e:exclude n:dry-run!",
    "git rm": "n:dry-run! :cached!",
    "git mv": "n:dry-run!",
    "git apply": "p: C: :directory :exclude :include :stat! :check! :numstat! :summary!",
    "git restore": "s:source S:staged! W:worktree! :pathspec-from-file",
    "git archive": "o:output> :format :prefix :remote",
    **dict.fromkeys(("git diff", "git log", "git show"), ":output> O: S: G: n: U: L:"),
    "git format-patch": "o:output-directory> :output-directory>",
    "openssl": (
        ":in< :inkey :key :CAkey :signkey :keyfile :kfile :CAfile :cert :certfile< :out> :keyout> "
        ":writerand> :extfile< :connect :host~ :proxy~ :pass :passin :passout :k :K :iv :S :md "
        ":name :subj :days :config"
    ),
    "wipefs": "a:all! b:backup? f:force! J:json! n:no-act! O:output o:offset p:parsable! q:quiet! t:types",
    "curl": _CURL,
    "wget": _WGET,
    "aria2c": "o:out> d:dir> i:input-file< s:split x:max-connection-per-server :header :all-proxy~ :referer",
    "fetch": "o:output>",
    **dict.fromkeys(("http", "https", "xh", "xhs", "httpie"), _REQUEST),
    "psql": (
        f"{_SERVER} U:username d:dbname c:command f:file v:set :variable o:output> F:field-separator "
        "L:log-file> P:pset R:record-separator T:table-attr"
    ),
    **dict.fromkeys(("pg_dump", "pg_dumpall", "pg_restore", "pg_isready"), _POSTGRES),
    **dict.fromkeys(("createdb", "dropdb"), _POSTGRES),
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"), _MYSQL),
    "redis-cli": f"{_SERVER} a:pass n: u:uri~",
    **dict.fromkeys(
        ("mongo", "mongosh", "mongodump"), ":host~ :port u:username p:password d:db c:collection"
    ),
    "ldapsearch": "h:host~ H:uri~ p:port D: w: b: s:",
    **dict.fromkeys(("kubectl", "oc"), "s:server~ n:namespace :context :kubeconfig :token f:filename<"),
    "swaks": "s:server~ t:to f:from p:port :proxy~",
    "msmtp": ":host~ :port :proxy-host~ f:from a:account C:file",
    "telnet": "bln:",
    **dict.fromkeys(("nc", "ncat", "netcat"), "iIMmOPpqsTVwX: x:~ :proxy~ :proxy-type :source :wait"),
    "ping": "cIilMmpQsStTWw:",
    "dig": "bcfkpqtxy:",
    "host": "cNRtW:",
    "whois": "h:host~ p:port",
    "lftp": "efpu:",
    "traceroute": "fgimNpqsw:",
}
"""Each entry: letters, a colon, the long name, marks. Without a mark an option takes any value. The value is
a file that is read (`<`) or written (`>`), may name one behind an `@`, is one if it looks like a path (`^`),
is a place (`~`); it is there only when attached (`?`), is the second of two words (`2`), or there is none
(`!`). An option that gives what would be the first operand has `%`. Files that only set a program up, such as
keys, have no mark."""
