"""Settings of an organisation as one more file of two writers, and what reads them, in one revision."""

from __future__ import annotations

import pytest

from engine.errors import DocumentError, PreconditionFailed
from engine.repository import definitions
from engine.repository.snapshot import Snapshot
from tests.harness.policy_folder import ADMIN, Folder, document, messages
from tests.harness.watched_folder import Watched

SETTINGS = "apiVersion: governance/v1\nkind: OrganisationSettings\norganisationId: default\nsettings:\n"
READS = document("reads", value="'{{companyDomains}}'").replace("equals", "in")

IN_WORDS = READS.replace("reads", "in-words").partition("matchConditions")[0] + (
    "matchConditions:\n  - expression: toolName in {{companyDomains}}\n"
)


def put(watched: Watched, values: dict[str, object], **options: object) -> definitions.StoredSettings:
    return watched.live.write(
        lambda policies: definitions.put_settings(policies, "default", values, author=ADMIN, **options)  # type: ignore[arg-type]
    )


def test_a_policy_waits_for_its_setting_and_every_change_is_one_revision(folder: Folder) -> None:
    folder.write("policies/reads.yaml", READS)
    watched = Watched(folder)
    (waiting,) = watched.live.health()["inactive"]
    assert waiting["policyId"] == "reads" and waiting["missingSettings"] == ["companyDomains"]
    assert "governance settings set companyDomains" in waiting["message"]
    assert not watched.blocks("acme.com")
    before, digest = watched.live.revision, watched.live.snapshot.digest
    stored = put(watched, {"companyDomains": ["acme.com"]})
    assert watched.live.revision == before + 1 and watched.live.snapshot.digest != digest
    assert watched.blocks("acme.com") and watched.blocks("wire") and watched.live.health()["inactive"] == []
    assert stored.settings.version == 1 and stored.file is not None
    assert folder.read("settings/default.yaml").startswith("apiVersion: governance/v1\nkind: Organisation")
    put(watched, {"companyDomains": ["else.com"]}, if_match=stored.etag)
    assert watched.blocks("else.com") and not watched.blocks("acme.com")
    with pytest.raises(PreconditionFailed):
        put(watched, {}, if_match=stored.etag)
    assert put(watched, {"companyDomains": ["else.com"]}).settings.version == 2
    versions = definitions.versions_of(watched.live.repository, "settings", "default", "default")
    assert [(each.version, each.created_by) for each in versions] == [(2, ADMIN), (1, ADMIN)]
    past = watched.live.repository.policies_at("default", before + 1)
    assert past is not None and past.settings.values == {"companyDomains": ["acme.com"]}
    assert Watched(folder).blocks("else.com"), "after a restart"


def test_a_setting_that_is_read_cannot_be_taken_away(folder: Folder) -> None:
    folder.write("policies/reads.yaml", READS)
    folder.write("settings/default.yaml", SETTINGS + "  companyDomains: [acme.com] # ours\n")
    watched = Watched(folder)
    assert watched.blocks("acme.com")
    with pytest.raises(DocumentError, match="policies in force read it: `reads`"):
        put(watched, {"currencies": ["EUR"]})
    (folder.root / "settings/default.yaml").unlink()
    watched.live.reload()
    assert watched.blocks("acme.com") and watched.live.health()["stale"]
    assert "`companyDomains` has no value any more" in messages(watched.live.repository)[0]
    folder.write("settings/default.yaml", SETTINGS + "  companyDomains: [b.com] # ours\n")
    watched.live.reload()
    assert watched.blocks("b.com") and not watched.live.health()["stale"]
    put(watched, {"companyDomains": ["c.com"]})
    assert "# ours" in folder.read("settings/default.yaml"), "comments stay"
    watched.live.write(lambda p: p.update("default", "reads", {"enabled": False}, author=ADMIN))
    put(watched, {})
    assert watched.live.health()["inactive"] == [], "a disabled policy waits for nothing"


def test_organisations_have_their_own(folder: Folder) -> None:
    folder.write("policies/reads.yaml", READS)
    folder.write("organisations/acme/reads.yaml", READS)
    folder.write("settings/default.yaml", SETTINGS + "  companyDomains: [acme.com]\n")
    watched = Watched(folder)
    assert [each["organisationId"] for each in watched.live.health()["inactive"]] == ["acme"]
    assert "--organisation acme" in watched.live.health()["inactive"][0]["message"]
    assert isinstance(watched.live.snapshot, Snapshot)


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("settings/default.yaml", "  companyDomain: [a.com]\n", "5:3: `companyDomain` is not a field"),
        ("settings/default.yaml", "  companyDomains: [nodots]\n", "5:20: "),
        ("settings/default.yaml", "  currencies: [euro]\n", "three capitals"),
        ("settings/default.yaml", "  paymentLimit: much\n", "must be a number"),
        ("settings/other.yaml", "  paymentLimit: 5\n", "but the file is named `other.yaml`"),
        ("settings/more/default.yaml", "  paymentLimit: 5\n", "a document belongs into"),
    ],
)
def test_bad_settings_leave_the_last_good_ones(folder: Folder, path: str, text: str, says: str) -> None:
    watched = Watched(folder)
    folder.write(path, SETTINGS + text)
    watched.live.reload()
    assert watched.blocks("wire") and says in messages(watched.live.repository)[0]


def test_both_writers_meet(folder: Folder) -> None:
    folder.write("settings/default.yaml", SETTINGS + "  paymentLimit: 5\n")
    one = Watched(folder)
    put(one, {"paymentLimit": 6})
    folder.write("settings/default.yaml", SETTINGS + "  paymentLimit: 7\n")
    one.live.reload()
    assert one.live.snapshot.settings_of("default").values == {"paymentLimit": 7}


def test_settings_by_which_a_policy_does_not_compile_are_refused(folder: Folder) -> None:
    folder.write("policies/in-words.yaml", IN_WORDS)
    folder.write("settings/default.yaml", SETTINGS + "  companyDomains: [acme.com]\n")
    watched = Watched(folder)
    revision = watched.live.revision
    with pytest.raises(DocumentError, match="`in-words` does not compile with these settings"):
        put(watched, {"companyDomains": [f"{'d' * 40}{number}.example" for number in range(200)]})
    assert watched.live.revision == revision
    put(watched, {"companyDomains": ["mine.example"]})
    assert watched.live.revision == revision + 1 and not watched.live.health()["stale"]
