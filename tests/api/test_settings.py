"""Settings: one table, parsed strictly, and nothing unsafe starts."""

from __future__ import annotations

import dataclasses
import resource
from pathlib import Path

import pytest
from governance_client import ClientSettings

from api.settings import OF_CLIENTS, TABLE, Settings, SettingsError, load

SECRET = "0123456789abcdef" * 3


def test_defaults() -> None:
    settings = load({})
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8700, 1)
    assert settings.data_dir == Path("data")
    assert settings.policies_dir == Path("policies.d")
    assert settings.database == "sqlite:///data/governance.sqlite"
    assert settings.public == settings.frontend == settings.base_url == "http://127.0.0.1:8700"
    assert settings.token_seconds == 43200
    assert settings.max_body_bytes == 1048576
    assert not settings.production


def test_the_table_and_the_settings_are_the_same() -> None:
    assert [setting.field for setting in TABLE] == [field.name for field in dataclasses.fields(Settings)]
    assert len({setting.name for setting in TABLE}) == len(TABLE)
    assert all(setting.help for setting in TABLE)


def test_flags_go_before_the_environment() -> None:
    settings = load({"GOVERNANCE_PORT": "1000", "GOVERNANCE_HOST": "10.0.0.1"}, port="2000", host=None)
    assert (settings.port, settings.host) == (2000, "10.0.0.1")


def test_the_public_address_follows_the_front_end() -> None:
    front = {"GOVERNANCE_FRONTEND_URL": "https://console.example/"}
    assert load(front).public == "https://console.example"
    assert load({**front, "GOVERNANCE_PUBLIC_URL": "https://api.example/"}).public == "https://api.example"


def test_proxies_are_addresses_and_networks() -> None:
    found = load({"GOVERNANCE_TRUSTED_PROXIES": "10.0.0.7, 10.1.2.3/16,::1"}).trusted_proxies
    assert found == ("10.0.0.7/32", "10.1.0.0/16", "::1/128")


def test_connections_leave_file_descriptors_for_the_rest() -> None:
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert load({}).most_connections in (min(descriptors * 3 // 4, descriptors - 112), 1 << 20)
    assert load({"GOVERNANCE_CONNECTIONS": "50"}).most_connections == 50


@pytest.mark.parametrize("folder", ["", "nowhere", "file"])
def test_the_folder_of_counters_must_be_there(folder: str, tmp_path: Path) -> None:
    """The library that counts would fail with it later."""
    (tmp_path / "file").touch()
    assert load({"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)})
    with pytest.raises(SettingsError, match=r"PROMETHEUS_MULTIPROC_DIR is .* must be a folder"):
        load({"PROMETHEUS_MULTIPROC_DIR": folder and str(tmp_path / folder)})


def test_an_empty_variable_is_the_default() -> None:
    assert load({"GOVERNANCE_PORT": ""}).port == 8700


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PORT", "http", "GOVERNANCE_PORT is `http`: write a whole number from 0 to 65535"),
        ("PORT", "65536", "GOVERNANCE_PORT is `65536`: write a whole number from 0 to 65535"),
        ("WORKERS", "0", "GOVERNANCE_WORKERS is `0`: write a whole number from 1 to 64"),
        ("ENV", "prod", "GOVERNANCE_ENV is `prod`: write one of `development`, `production`"),
        (
            "REQUIRE_BOUND_KEYS",
            "yes",
            "GOVERNANCE_REQUIRE_BOUND_KEYS is `yes`: write one of `on`, `off`",
        ),
        ("GIT", "push", "GOVERNANCE_GIT is `push`: write one of `off`, `commit`"),
        ("FRONTEND_URL", "example.com", "write an http or https address"),
        ("PUBLIC_URL", "example.com", "write an http or https address"),
        ("FRONTEND_URL", "javascript:alert(1)", "write an http or https address"),
        ("WEBHOOK_ALLOW", "example.com", "`example.com` is not `host:port`"),
        ("WEBHOOK_ALLOW", "*.example.com:443", "`*.example.com:443` is no receiver's name; write out each"),
        ("WEBHOOK_ALLOW", "a.example:443,${RECEIVER}:443", "`${receiver}:443` is no receiver's name"),
        ("WEBHOOK_ALLOW", "example.com:²", "`example.com:²` is not `host:port`"),
        ("WEBHOOK_ALLOW", "example.com:" + "4" * 5_000, "is not `host:port`"),
        ("TRUSTED_PROXIES", "10.0.0.1,*", "`*` is not an address such as `10.0.0.7`"),
        ("WEBHOOK_RETRY", "0,soon", "write seconds separated by commas"),
        ("WEBHOOK_RETRY", "-1", "every delay must be from 0 to 10000000 seconds"),
        ("TOKEN_SECONDS", "1", "write a whole number from 60 to 31536000"),
        ("LOG_FORMAT", "xml", "write one of `text`, `json`"),
        ("ACCESS_LOG", "yes", "write one of `on`, `off`"),
        ("MAX_BODY_BYTES", "1", "write a whole number from 1024"),
        ("REQUEST_SECONDS", "0", "GOVERNANCE_REQUEST_SECONDS is `0`: write a whole number from 1 to 3600"),
        ("CONNECTIONS", "-1", "GOVERNANCE_CONNECTIONS is `-1`: write a whole number from 0 to 1048576"),
    ],
)
def test_a_wrong_value_names_itself_and_what_is_accepted(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({f"GOVERNANCE_{name}": value})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://root:hunter2hunter2@db/x"),
        ("DATABASE_URL", "sqlite://hunter2"),
        ("DATABASE_URL", "sqlite:///"),
        ("DATABASE_URL", "postgresql://u:hu@nter2@db/x"),
        ("DATABASE_URL", "postgresql://u:hu/nter2@db/x"),
        ("DATABASE_URL", "postgresql://u:1?unter2@db/x"),
        ("DATABASE_URL", "postgresql://u:hunter2@db:nter2/x"),
        ("DATABASE_URL", "postgresql://u:hunter2@[::1/x"),
        ("JWT_SECRET", "hunter2hunter2"),
        ("API_KEY", "hunter2"),
        ("API_KEY", "hunter2 hunter2 hunter2"),
        ("API_KEY", "hünter2hünter2hünter2"),
        ("API_KEY", "hunter2hunter2hunter2\nX-Evil: 1"),
    ],
)
def test_a_wrong_secret_is_refused_without_repeating_it(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({f"GOVERNANCE_{name}": value})
    assert f"GOVERNANCE_{name}: " in str(caught.value)
    assert "nter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("JWT_SECRET", " " * 40, "can be guessed"),
        ("JWT_SECRET", "ab" * 20, "different characters"),
        ("JWT_SECRET_BEFORE", "short", "32 bytes"),
        ("FRONTEND_URL", "https://[bad", "write an http"),
        ("FRONTEND_URL", "https://example.com:99999", "write an http"),
        ("FRONTEND_URL", "https://example.com/?a=b", "write an http"),
        ("FRONTEND_URL", "https://example.com/#x", "write an http"),
        ("FRONTEND_URL", "https://a.example,https://b.example", "write one address"),
        ("PUBLIC_URL", "https://a.example https://b.example", "write one address"),
        ("FRONTEND_URL", "https://*.example.com", "write one address"),
        ("PUBLIC_URL", "https://me:secret@example.com", "no user or password"),
        ("DATABASE_URL", "sqlite:///x?mode=ro", "write `sqlite:"),
        ("DATABASE_URL", "sqlite:///:memory:", "write `sqlite:"),
        ("WEBHOOK_ALLOW", "http://127.0.0.1:9999", "is not `host:port`"),
        ("WEBHOOK_ALLOW", "127.0.0.1:9000 127.0.0.1:9001", "put commas between several"),
        ("WEBHOOK_ALLOW", "127.0.0.1:9000\n127.0.0.1:9001", "put commas between several"),
        ("WEBHOOK_RETRY", ",", "separated by commas"),
        ("TRUSTED_PROXIES", "0.0.0.0/0", "is everybody"),
        ("TRUSTED_PROXIES", "::/0", "is everybody"),
        ("ENV", "production\r", "is `production\\r`"),
        ("DATA_DIR", "./data\r", "is `./data\\r`: has blanks"),
        ("POLICIES_DIR", "policies.d ", "has blanks at its ends"),
        ("DATA_DIR", "data\u200b", "characters that cannot be seen"),
        ("DATA_DIR", '"/srv/data"', "has quotes around it"),
        ("AUDIT_KEY_FILE", "'/srv/key'", "has quotes around it"),
        ("DATABASE_URL", "sqlite:///x.sqlite\r", "has blanks at its ends"),
        ("DATA_DIR", "/srv/data # on the large disk", "has a comment behind it"),
        ("POLICIES_DIR", "policies.d # ours", "has a comment behind it"),
        ("DATABASE_URL", "sqlite:////srv/x.sqlite # ours", "has a comment behind it"),
        ("API_KEY", '"agk_for_the_first_hour"', "has quotes around it"),
        ("ADMIN_EMAIL", "'ann@example.com'", "has quotes around it"),
        ("ADMIN_PASSWORD", "'correct horse battery staple'", "has quotes around it"),
        ("ADMIN_PASSWORD", "correct horse battery staple\r", "carriage return"),
        ("METRICS_TOKEN", '"0123456789abcdef"', "has quotes around it"),
        ("ADMIN_PASSWORD", "b\udce9ton, correct horse", "not in UTF-8"),
        ("JWT_SECRET", "b\udce9ton" * 8, "not in UTF-8"),
    ],
)
def test_what_a_careless_hand_writes_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({f"GOVERNANCE_{name}": value})
    assert f"GOVERNANCE_{name}" in str(caught.value) and said in str(caught.value)


def test_what_clients_are_told_in_the_same_shell_is_no_problem() -> None:
    """The guide has its reader export these, and then start the service or add a key."""
    told = ClientSettings.from_env({"GOVERNANCE_API_KEY": "agk_1"})
    environment = {
        "GOVERNANCE_URL": told.url,
        "GOVERNANCE_AGENT_ID": "mailer",
        "GOVERNANCE_FAIL_MODE": told.fail_mode,
        "GOVERNANCE_JOURNAL": str(told.journal),
        "GOVERNANCE_TOKEN": "a token",
        "GOVERNANCE_TASK": "pay the invoices",
    }
    assert environment.keys() == OF_CLIENTS.keys()
    assert load(environment) == load({})


def test_a_setting_in_small_letters_is_not_left_out() -> None:
    with pytest.raises(
        SettingsError, match=r"governance_env: no such setting; did you mean GOVERNANCE_ENV\?"
    ):
        load({"governance_env": "production"})


@pytest.mark.parametrize(
    "name",
    [
        "\ufeffGOVERNANCE_ENV",
        " GOVERNANCE_ENV",
        "GOVERNANCE-ENV",
        "governance.env",
        "GOVERNACE_ENV",
        "GOVERNANCEENV",
        "GOVERNENCE_ENV",
    ],
)
def test_a_slip_before_the_name_does_not_leave_a_setting_out(name: str) -> None:
    with pytest.raises(SettingsError, match=r"no such setting; did you mean GOVERNANCE_ENV\?"):
        load({name: "production"})


def test_names_of_others_are_none_of_ours() -> None:
    others = {"GOVERNOR_PORT": "1", "GOVERNMENT_ENV": "x", "GO_ENV": "x", "MY_GOVERNANCE_ENV": "x", "G": ""}
    assert load(others) == load({})


def test_what_kubernetes_sets_for_a_service_of_our_name_is_told_as_that() -> None:
    environment = {"GOVERNANCE_SERVICE_HOST": "10.0.0.1", "GOVERNANCE_PORT": "tcp://10.0.0.1:80"}
    with pytest.raises(SettingsError, match="enableServiceLinks: false"):
        load(environment | {"GOVERNANCE_PORT_80_TCP_ADDR": "10.0.0.1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GOVERNANCE_JWT_SECRET", "$(cat /etc/governance/jwt-secret)"),
        ("GOVERNANCE_JWT_SECRET", "${GOVERNANCE_JWT_SECRET_OF_PRODUCTION}"),
        ("GOVERNANCE_JWT_SECRET", "{{ vault.governance.jwt_secret | trim }}"),
        ("GOVERNANCE_JWT_SECRET", "$GOVERNANCE_JWT_SECRET_OF_PRODUCTION"),
        ("GOVERNANCE_ADMIN_PASSWORD", "${ADMIN_PASSWORD}"),
        ("GOVERNANCE_API_KEY", "agk_$(random_characters)"),
        ("GOVERNANCE_METRICS_TOKEN", "`cat /run/metrics-token`"),
        ("GOVERNANCE_DATABASE_URL", "postgresql://governance:${PASSWORD}@db/governance"),
        ("GOVERNANCE_FRONTEND_URL", "https://${DOMAIN}"),
        ("GOVERNANCE_DATA_DIR", "$HOME/data"),
        ("GOVERNANCE_POLICIES_DIR", "/srv/${STAGE}/policies.d"),
        ("GOVERNANCE_AUDIT_KEY_FILE", "$CREDENTIALS_DIRECTORY/audit-key"),
    ],
)
def test_what_no_shell_has_replaced_is_no_value(name: str, value: str) -> None:
    """systemd, podman and docker pass it on as it stands: such a secret is known to all who know the file."""
    with pytest.raises(SettingsError, match=f"{name}.*: has a command or the name of a variable in it"):
        load({name: value})


def test_a_dollar_may_be_in_a_secret() -> None:
    secrets = {"GOVERNANCE_JWT_SECRET": f"a${SECRET}$(", "GOVERNANCE_ADMIN_PASSWORD": "pa$word{of} $mine"}
    assert load(secrets).admin_password == "pa$word{of} $mine"
    assert load({"GOVERNANCE_ADMIN_PASSWORD": "$Sunshine2026"}).admin_password == "$Sunshine2026"
    before = "$(cat /etc/governance/jwt-secret)"  # which a version before this one has taken
    assert load({"GOVERNANCE_JWT_SECRET_BEFORE": before}).jwt_secret_before == before


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///data/a.sqlite",
        "sqlite:////srv/a.sqlite",
        "postgresql://u:p%40x@db:5432/x",
        "postgres://db/x?sslmode=require",
        "postgresql://u:p@a:1,b:2/x",
        "postgresql://u:p@[::1]:5432/x",
        "postgresql://[::1]/x",
        "postgresql:///x?host=/run/postgresql&user=u",
    ],
)
def test_addresses_of_databases(url: str) -> None:
    assert load({"GOVERNANCE_DATABASE_URL": url}).database == url


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"GOVERNANCE_PORT": "x", "GOVERNANCE_ENV": "y", "GOVERNANCE_PROT": "1"})
    text = str(caught.value)
    assert "GOVERNANCE_PORT" in text and "GOVERNANCE_ENV" in text
    assert "GOVERNANCE_PROT: no such setting" in text


def test_a_misspelt_setting_is_told_what_was_meant() -> None:
    with pytest.raises(
        SettingsError, match=r"GOVERNANCE_PROT: no such setting; did you mean GOVERNANCE_PORT\?"
    ):
        load({"GOVERNANCE_PROT": "1"})
    with pytest.raises(SettingsError) as caught:
        load({"GOVERNANCE_COFFEE": "1"})
    assert "did you mean" not in str(caught.value)


def test_a_wrong_flag_is_named_as_the_flag() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"GOVERNANCE_ENV": "prod"}, port="abc", data_dir="x", database_url="mysql://u:hunter2@db/x")
    text = str(caught.value)
    assert "--port is `abc`: write a whole number" in text and "GOVERNANCE_PORT" not in text
    assert "--database-url: write" in text and "hunter2" not in text
    assert "GOVERNANCE_ENV is `prod`" in text


def test_production_needs_a_configured_secret() -> None:
    with pytest.raises(SettingsError, match="GOVERNANCE_JWT_SECRET: must be set"):
        load({"GOVERNANCE_ENV": "production"})
    assert load({"GOVERNANCE_ENV": "production", "GOVERNANCE_JWT_SECRET": SECRET}).production


def test_a_service_that_listens_everywhere_links_to_the_loopback_address() -> None:
    for everywhere in ("0.0.0.0", "*", "0"):
        settings = load({"GOVERNANCE_HOST": everywhere})
        assert (settings.host, settings.base_url) == ("0.0.0.0", "http://127.0.0.1:8700")
    assert load({"GOVERNANCE_HOST": "::"}).base_url == "http://[::1]:8700"
    assert load({"GOVERNANCE_HOST": "::1"}).base_url == "http://[::1]:8700"
    for written in ("https://a.example/", " https://a.example "):
        assert load({"GOVERNANCE_FRONTEND_URL": written}).frontend == "https://a.example"


def test_secrets_are_not_in_the_text_of_the_settings() -> None:
    settings = load({"GOVERNANCE_JWT_SECRET": "s3cret of tests " * 3, "GOVERNANCE_API_KEY": "s3cret" * 4})
    assert "s3cret" not in repr(settings)
