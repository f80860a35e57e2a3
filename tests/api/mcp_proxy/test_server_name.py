"""What a server is called when nobody says."""

from __future__ import annotations

import pytest

from api.mcp_proxy.server_name import checked_name, default_name
from tests.harness.command_line import run_command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @modelcontextprotocol/server-everything", "server-everything"),
        ("npx -y @modelcontextprotocol/server-github@2026.1.1 stdio", "server-github"),
        ("uvx mcp-server-git --repository .", "mcp-server-git"),
        ("uv run server.py", "server"),
        ("python3 -m my_server.main", "my-server.main"),
        ("node ./build/index.js", "index"),
        ("/usr/local/bin/github-mcp-server stdio", "github-mcp-server"),
        ("env TOKEN=x files.py", "files"),
        ("docker run -i --rm mcp/github", "github"),
        ("npx", "npx"),
    ],
)
def test_it_is_the_first_word_that_starts_nothing_else(command: str, name: str) -> None:
    assert default_name(command.split(), None) == name
    assert checked_name(name) == name


def test_it_is_the_host_of_an_address() -> None:
    assert default_name([], "https://mcp.example:8443/mcp") == "mcp.example"


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a__b", ".a", "a" * 65, "a b"])
def test_a_name_is_a_word_of_policies_and_a_file(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a server"):
        checked_name(name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "日本"], "no name of a server can be made of `日本`; give --server-name NAME"),
        (["--url", "http://日本/mcp"], "no name of a server can be made of `日本`; give --server-name NAME"),
        (["--url", "http:///mcp"], "`http:///mcp` is no address of a server"),
        (["--url", "http://[::1/mcp"], "`http://[::1/mcp` is no address of a server"),
    ],
)
def test_what_gives_no_name_is_told_in_words(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run_command(capsys, "mcp-proxy", *words)
    assert code == 2 and error.startswith(f"governance: {said}")
