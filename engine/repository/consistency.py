"""Whether a set of documents fits together.

Refuses sets in which two files say the same id, or a pack names a preset that is not there, batches that
leave an organisation nothing of several policies, a policy without a setting that it reads, or with one by
which it does not compile, and examples that do not hold by the tools that are declared. It knows nothing of
one document's own faults, those are found when it is loaded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

from engine.conditions.examples import reads_tools
from engine.conditions.settings import NO_SETTINGS, reads, value_of
from engine.derived.tools import Tools
from engine.detectors.examples import failures
from engine.documents.document import Defect, located
from engine.documents.policy import failing_examples
from engine.documents.presets import Pack, Preset, failing_preset_examples
from engine.documents.yaml import read
from engine.errors import ConditionError, Problem
from engine.matching.matcher import CompiledPolicy
from engine.model import Detector, OrganisationSettings, Policy, ToolSet
from engine.repository.loader import Loaded
from engine.repository.snapshot import Snapshot, in_order, ordered
from engine.worktree.disk import shown
from engine.worktree.paths import DEFAULT, Kind, Place, place_of

WithExamples = Policy | Preset | Detector
MOST_NAMED: Final = 10


def refuse_set(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    """What is wrong between files once these edits (None: removed) are laid over what is in force."""
    problems: list[Problem] = []
    owners: dict[Place, set[str]] = {}
    for path, loaded in edits.items():
        if loaded is not None:
            owner = head.path_of(loaded.place.kind, loaded.place.organisation_id, loaded.place.document_id)
            owners.setdefault(loaded.place, {owner} if owner and owner not in edits else set()).add(path)
    for place, paths in owners.items():
        if len(paths) > 1:
            names = " and ".join(f"`{shown(path)}`" for path in sorted(paths))
            kind = "tool set" if place.kind == "toolSet" else place.kind
            message = f"{names} are the same {kind} `{place.document_id}`; keep one of them"
            problems.append(Problem(message, f"/{place.kind}Id", "duplicate_id", shown(max(paths))))
    if any((loaded or head.files[path]).kind != "policy" for path, loaded in edits.items()):
        problems += _refuse_packs(head, edits)
    return problems


_STOPPING: Final[Mapping[Kind, tuple[str, str, str]]] = {
    "policy": ("policies", "everything would be allowed", "policies"),
    "toolSet": ("tool sets", "no tool would be known", "tools"),
    "detector": ("detectors", "nobody would be told of what is unusual", "detectors"),
}
"""Without which documents nothing is stopped: their name, what follows, their folder."""


def refuse_emptied(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    """Files that are gone all at once are rather lost than deleted, and without them everything is allowed,
    no tool is known, or nothing unusual is seen. The last one alone may go, so who means it takes two
    steps."""
    gone = Counter(
        (record.kind, record.organisation_id)
        for path, loaded in edits.items()
        if loaded is None and (record := head.files.get(path)) and record.kind in _STOPPING
    )
    come = {(loaded.kind, loaded.place.organisation_id) for loaded in edits.values() if loaded}
    there = Counter((record.kind, record.organisation_id) for record in head.files.values()) if gone else {}
    problems: list[Problem] = []
    for (kind, organisation_id), count in gone.items():
        if count == 1 or count < there[kind, organisation_id] or (kind, organisation_id) in come:
            continue
        name, then, folder = _STOPPING[kind]
        message = (
            f"the files of all {count} {name} of organisation `{organisation_id}` are gone at once, and"
            f" without them {then}; put them back. If you mean it, keep one until the others are out of"
            " force, and then remove that one"
        )
        above = "" if organisation_id == DEFAULT else f"organisations/{organisation_id}/"
        problems.append(Problem(message, "", "all_gone", above + folder))
    return problems


def refuse_emptied_folders(
    head: Snapshot, edits: Mapping[str, Loaded | None], emptied: Callable[[str], str]
) -> list[Problem]:
    """The same of a folder that still stands with nothing in it: a volume that is not mounted leaves one, and
    so does a submodule that is not checked out. `emptied` names it, by a folder that is it or was in it."""
    come = {loaded.place for loaded in edits.values() if loaded}
    gone: defaultdict[str, list[str]] = defaultdict(list)
    for path, loaded in edits.items():
        if loaded is None and (record := head.files.get(path)) and record.kind in _STOPPING:
            gone[path.rpartition("/")[0]].append(path)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for folder, paths in gone.items():
        found[emptied(folder)] += [path for path in paths if place_of(path) not in come]
    found.pop("", None)
    problems: list[Problem] = []
    for folder, paths in found.items():
        if len(paths) > 1:
            message = (
                f"the {len(paths)} files of this folder that were in force are gone at once, and it stands "
                "empty, as where a volume is not mounted or a submodule is not checked out; put them back. "
                "If you mean it, remove the empty folder as well"
            )
            problems.append(Problem(message, "", "all_gone", shown(folder)))
    return problems


def refuse_unset(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    """A setting that loses its value while policies in force read it would switch them off unseen."""
    problems: list[Problem] = []
    for path, loaded in edits.items():
        record = head.files.get(path)
        if record is None or record.kind != "settings":
            continue
        document = None if loaded is None else loaded.document
        after = document if isinstance(document, OrganisationSettings) else NO_SETTINGS
        before = head.settings_of(record.organisation_id)
        lost = [name for name in before.values if value_of(after, name) is None]
        for name in lost:
            readers = _readers(name, record.organisation_id, head, edits)
            if readers:
                message = (
                    f"`{name}` has no value any more, but policies in force read it: {_named(readers)}; put"
                    " it back, or disable them first"
                )
                problems.append(Problem(message, f"/settings/{name}", "setting_in_use", shown(path)))
    return problems


def refuse_uncompiled(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    """Policies that do not compile with the settings that they would read: an expression grown too long."""
    changed = {
        loaded.place.organisation_id: (path, loaded.document)
        for path, loaded in edits.items()
        if loaded is not None and isinstance(loaded.document, OrganisationSettings)
    }
    problems: list[Problem] = []
    read_by = [(path, each) for path, each in _come(edits) if each.organisation_id not in changed]
    for organisation_id in changed:
        read_by += _policies(head, edits, organisation_id)
    for path, policy in read_by:
        if not reads(policy):
            continue
        place, settings = changed.get(
            policy.organisation_id, (path, head.settings_of(policy.organisation_id))
        )
        try:
            CompiledPolicy.of(policy, settings=settings)
        except ConditionError as error:
            message = f"policy `{policy.policy_id}` does not compile with these settings: {error.message}"
            named = path if path in edits else place
            problems.append(Problem(message, "", "does_not_compile", shown(named)))
    return problems


def _come(edits: Mapping[str, Loaded | None]) -> list[tuple[str, Policy]]:
    """The policies that these edits bring, and their paths."""
    documents = [(path, loaded.document) for path, loaded in edits.items() if loaded is not None]
    return [(path, each) for path, each in documents if isinstance(each, Policy)]


def _policies(
    head: Snapshot, edits: Mapping[str, Loaded | None], organisation_id: str
) -> list[tuple[str, Policy]]:
    """The policies of an organisation once these edits are in, and their paths."""
    there = [(each.file.path, each.policy) for each in head.of(organisation_id).values()]
    stay = [(path, policy) for path, policy in there if path not in edits]
    return stay + [(path, each) for path, each in _come(edits) if each.organisation_id == organisation_id]


def _readers(
    name: str, organisation_id: str, head: Snapshot, edits: Mapping[str, Loaded | None]
) -> list[str]:
    """The enabled policies that read a setting once these edits are in."""
    policies = [each for _, each in _policies(head, edits, organisation_id)]
    return sorted({each.policy_id for each in policies if each.enabled and name in reads(each)})


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"


def refuse_examples(
    head: Snapshot,
    edits: Mapping[str, Loaded | None],
    content: Callable[[str], bytes],
    digest: Callable[[str], str],
    known: MutableMapping[Hashable, Any],
) -> list[Problem]:
    """The examples that do not hold by the tools as these edits declare them: those of the edited documents,
    and where declarations changed, of all others that read them. `content` gives the bytes of a path and
    `digest` that of them. What was found of the same bytes by the same declarations is in `known`."""
    tool_sets = {path: each for path, each in head.tool_sets.items() if path not in edits}
    come = {path: each.document for path, each in edits.items() if each is not None}
    tool_sets |= {path: each for path, each in come.items() if isinstance(each, ToolSet)}
    declared: dict[str, tuple[Hashable, bool]] = {}

    def tools(organisation_id: str) -> tuple[Hashable, bool]:
        """What names those of an organisation, and whether they changed."""
        if organisation_id not in declared:
            sets = in_order(tool_sets, organisation_id)
            changed = ordered(tool_sets, organisation_id) != head.tools_of(organisation_id)
            declared[organisation_id] = tuple((path, digest(path)) for path in sets), changed
        return declared[organisation_id]

    def failing(path: str, document: WithExamples) -> list[Defect]:
        owner = DEFAULT if isinstance(document, Preset) else document.organisation_id
        names = tools(owner)[0]
        if ("tools", names) not in known:
            known["tools", names] = Tools(ordered(tool_sets, owner))
        what = ("examples", digest(path), names)
        if what not in known:
            known[what] = _failing(document, known["tools", names], lambda: content(path))
        found: list[Defect] = known[what]
        return found

    documents: list[tuple[str, WithExamples]] = [
        (path, each) for path, each in come.items() if isinstance(each, Policy | Preset)
    ]
    detectors: dict[str, Detector] = {}
    if tool_sets != head.tool_sets:
        documents += [
            each for each in _of(head, lambda organisation: tools(organisation)[1]) if each[0] not in edits
        ]
        detectors |= {path: each for path, each in head.detectors.items() if path not in edits}
    detectors |= {path: each for path, each in come.items() if isinstance(each, Detector)}
    problems: list[Problem] = []
    for path, document in (*documents, *detectors.items()):
        if defects := failing(path, document):
            reading = read(content(path), shown(path))
            problems += [located(reading, each) for each in defects]
    return problems


def _of(head: Snapshot, wanted: Callable[[str], bool]) -> Iterator[tuple[str, WithExamples]]:
    """The policies in force of the organisations that are `wanted`, and the presets if the default one is."""
    for organisation_id, policies in head.policies.items():
        if wanted(organisation_id):
            for stored in policies.values():
                yield stored.file.path, stored.policy
    if wanted(DEFAULT):
        for path, record in head.files.items():
            if record.kind == "preset":
                yield path, head.presets[record.document_id]


def _failing(document: WithExamples, tools: Tools, content: Callable[[], bytes]) -> list[Defect]:
    if isinstance(document, Policy):
        return failing_examples(document, tools) if reads_tools(document) else []
    if isinstance(document, Preset):
        return failing_preset_examples(document, tools)
    examples = read(content()).root.value.get("examples", ())
    return [
        Defect(f"/examples/{index}/alerts", message, "example_fails")
        for index, message in failures(document, examples, tools)
    ]


def _refuse_packs(head: Snapshot, edits: Mapping[str, Loaded | None]) -> list[Problem]:
    documents = {path: loaded.document for path, loaded in edits.items() if loaded is not None}
    packs = [pack for path, pack in head.packs_by_path().items() if path not in edits]
    packs += [document for document in documents.values() if isinstance(document, Pack)]
    gone = {
        record.document_id for path in edits if (record := head.files.get(path)) and record.kind == "preset"
    }
    presets = head.presets.keys() - gone
    presets |= {document.preset_id for document in documents.values() if isinstance(document, Preset)}
    return [
        Problem(
            f"there is no preset `{preset_id}`; add it, or remove it from the pack",
            f"/presets/{index}",
            "unknown_preset",
            pack.file,
            *pack.places[index],
        )
        for pack in packs
        for index, preset_id in enumerate(pack.presets)
        if preset_id not in presets
    ]
