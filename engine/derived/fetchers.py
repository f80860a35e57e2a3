"""The operands of programs that fetch from URLs: what is left when options and their values are taken away.

An option that is not in a table takes no value here, so that what follows it counts as an operand: a place
too many is told of rather than one too few. Knows nothing of hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from engine.fields.words import word_set

FETCHERS: Final = word_set(
    "curl wget http https xh xhs aria2c axel lynx w3m links fetch httpie iwr irm invoke-webrequest "
    "invoke-restmethod"
)
_REQUESTS: Final = frozenset(["http", "https", "xh", "xhs", "httpie"])
"""Programs told a method, a URL, and what to send."""
_METHODS: Final = word_set("get post put patch delete head options trace")

_CURL: Final = word_set(
    "abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config connect-timeout "
    "connect-to continue-at cookie cookie-jar create-file-mode crlfile curves data data-ascii "
    "data-binary data-raw data-urlencode delegation dns-interface dns-ipv4-addr dns-ipv6-addr "
    "dns-servers doh-url dump-header egd-file engine etag-compare etag-save expect100-timeout form "
    "form-string ftp-account ftp-alternative-to-user ftp-method ftp-port ftp-ssl-ccc-mode "
    "happy-eyeballs-timeout-ms header hostpubmd5 hostpubsha256 hsts interface json keepalive-time key "
    "key-type krb libcurl limit-rate local-port login-options mail-auth mail-from mail-rcpt "
    "max-filesize max-redirs max-time netrc-file noproxy oauth2-bearer output output-dir parallel-max "
    "pass pinnedpubkey preproxy proto proto-default proto-redir proxy proxy-cacert proxy-capath "
    "proxy-cert proxy-cert-type proxy-ciphers proxy-crlfile proxy-header proxy-key proxy-key-type "
    "proxy-pass proxy-pinnedpubkey proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype "
    "proxy-tlspassword proxy-tlsuser proxy-user proxy1.0 pubkey quote random-file range rate referer "
    "request request-target resolve retry retry-delay retry-max-time sasl-authzid service-name socks4 "
    "socks4a socks5 socks5-gssapi-service socks5-hostname speed-limit speed-time stderr telnet-option "
    "tftp-blksize time-cond tls-max tls13-ciphers tlsauthtype tlspassword tlsuser trace trace-ascii "
    "unix-socket upload-file url url-query user user-agent write-out"
)
_WGET: Final = word_set(
    "accept accept-regex append-output base bind-address body-data body-file ca-certificate "
    "ca-directory certificate certificate-type ciphers compression config connect-timeout crl-file "
    "cut-dirs default-page directory-prefix dns-timeout domains exclude-directories exclude-domains "
    "execute follow-tags ftp-password ftp-user header http-password http-user ignore-tags "
    "include-directories input-file level limit-rate load-cookies local-encoding method output-document "
    "output-file password pinnedpubkey post-data post-file prefer-family private-key private-key-type "
    "progress proxy-password proxy-user quota read-timeout referer regex-type reject reject-regex "
    "rejected-log remote-encoding restrict-file-names retry-on-http-error save-cookies secure-protocol "
    "start-pos timeout tries user user-agent wait waitretry"
)
_REQUEST: Final = word_set(
    "auth auth-type bearer boundary cert cert-key ciphers default-scheme format-options max-headers "
    "max-redirects output pretty print proxy response-charset response-mime session session-read-only "
    "ssl style timeout verify"
)
_WITH_VALUE: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "curl": ("AbcCdDeEFHKmoPQrtTuUwxXyYz", _CURL),
    "wget": ("aABDeiIlOoPQRtTUwX", _WGET),
    **dict.fromkeys(_REQUESTS, ("aAoPps", _REQUEST)),
}
"""Options that take a value, short and long."""

_BARE: Final = re.compile(r"[A-Za-z0-9_][\w-]*")


def operands(name: str, words: Sequence[str]) -> Iterator[str]:
    """The words that are neither options nor their values."""
    short, long = _WITH_VALUE.get(name, _WITH_VALUE["curl"])
    taken = False
    for word in words:
        if taken:
            taken = False
        elif word.startswith("--"):
            taken = word[2:] in long
        elif word.startswith("-"):
            at = next((at for at, letter in enumerate(word[1:], 1) if letter in short), 0)
            taken = 0 < at == len(word) - 1
        else:
            yield word


def bare_hosts(name: str, words: Sequence[str]) -> Iterator[str]:
    """The operands that can be nothing but a host, though they have neither dot nor port: `curl intranet`."""
    if name in ("curl", "wget"):
        yield from filter(_BARE.fullmatch, operands(name, words))
    elif name in _REQUESTS:
        found = [word for word in operands(name, words) if word.lower() not in _METHODS]
        yield from filter(_BARE.fullmatch, found[:1])
