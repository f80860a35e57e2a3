"""All documents of one policies folder at one moment, read for the commands: every good one, every problem.

Unlike the repository it keeps going where a file is broken, since whoever lints wants to hear everything at
once, and it reads tests, which the service ignores. Files come as bytes, from a disk or out of git.

It must not know disks, archives or what is in force.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.conditions.settings import NO_SETTINGS
from engine.documents.document import digest_of, sorted_problems
from engine.documents.policy import PolicyTest, load_policy_test
from engine.documents.presets import Pack, Preset
from engine.documents.yaml import YamlReading, read
from engine.errors import DocumentError, Problem
from engine.matching.ruleset import Ruleset
from engine.model import Detector, Json, OrganisationSettings, Policy, ToolSet
from engine.repository.consistency import refuse_examples, refuse_set
from engine.repository.loader import Loaded, load
from engine.repository.snapshot import Snapshot, ordered
from engine.worktree.disk import shown
from engine.worktree.paths import DEFAULT, TEST, declares_tools, ignored, place_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Checkout:
    """The documents by what they are; `files` has the path of each policy, by organisation and id;
    `tool_sets` and `detectors` are by path."""

    contents: Mapping[str, bytes]
    policies: Mapping[str, Mapping[str, Policy]]
    files: Mapping[tuple[str, str], str]
    presets: Mapping[str, Preset]
    packs: Mapping[str, Pack]
    tool_sets: Mapping[str, ToolSet]
    detectors: Mapping[str, Detector]
    settings: Mapping[str, OrganisationSettings]
    tests: tuple[tuple[str, PolicyTest], ...]
    """Each with its organisation."""
    problems: tuple[Problem, ...] = ()
    _readings: dict[str, YamlReading] = field(default_factory=dict)

    def file_of(self, policy: Policy) -> str:
        return self.files[policy.organisation_id, policy.policy_id]

    def tools_of(self, organisation_id: str) -> tuple[ToolSet, ...]:
        """The tool sets that count in an organisation."""
        return ordered(self.tool_sets, organisation_id)

    def settings_of(self, organisation_id: str) -> OrganisationSettings:
        """The settings of an organisation."""
        return self.settings.get(organisation_id, NO_SETTINGS)

    def ruleset(self, organisation_id: str, settings: OrganisationSettings | None = None) -> Ruleset:
        """The compiled policies of an organisation, with the tools that count there, by its settings or by
        others."""
        policies = self.policies.get(organisation_id, {}).values()
        settings = self.settings_of(organisation_id) if settings is None else settings
        return Ruleset.build(policies, tools=self.tools_of(organisation_id), settings=settings)

    def organisations(self) -> set[str]:
        """Those that have a document here, and the default one, which is always there."""
        return {DEFAULT, *self.policies, *(organisation_id for organisation_id, _ in self.tests)}

    def examples(self, path: str) -> Sequence[Mapping[str, Json]]:
        """Those that a good document has."""
        found: Sequence[Mapping[str, Json]] = self._reading(path).root.value.get("examples", ())
        return found

    def place(self, file: str, pointer: str) -> tuple[int, int]:
        """Line and column of a JSON pointer in a file; a whole document's is that of its first line."""
        try:
            reading = self._reading(file)
        except DocumentError:
            return 1, 1
        node, key = reading.find(pointer)
        where = key if key is not None else node
        return where.line, where.column

    def _reading(self, file: str) -> YamlReading:
        if file not in self._readings:
            self._readings[file] = read(self.contents[file], file)
        return self._readings[file]


def is_test(path: str) -> bool:
    return path.endswith(TEST)


def load_one(path: str, content: bytes) -> Loaded | PolicyTest | tuple[Problem, ...]:
    """One document, or what is wrong with it."""
    try:
        return load_policy_test(content, shown(path)) if is_test(path) else load(path, content)
    except DocumentError as error:
        return error.problems


def checkout(
    contents: Mapping[str, bytes],
    problems: Iterable[Problem] = (),
    loaded: Iterable[tuple[str, Loaded | PolicyTest | tuple[Problem, ...]]] | None = None,
) -> Checkout:
    """What these files (by path, with `/`) hold. `loaded`: the same files, read already by `load_one`."""
    found = list(problems)
    good: dict[str, Loaded] = {}
    tests: list[tuple[str, PolicyTest]] = []
    if loaded is None:
        loaded = ((path, load_one(path, contents[path])) for path in sorted(contents) if wanted(path))
    tools_known = True
    for path, one in loaded:
        if isinstance(one, tuple):
            found += one
            tools_known = tools_known and not declares_tools(path)
        elif isinstance(one, PolicyTest):
            tests.append((_organisation(path), one))
        else:
            good[path] = one
    found += refuse_set(Snapshot(), dict(good))
    if tools_known:
        content = contents.__getitem__
        found += refuse_examples(
            Snapshot(), dict(good), content, lambda path: digest_of(content(path)), known={}
        )
    policies: dict[str, dict[str, Policy]] = defaultdict(dict)
    files: dict[tuple[str, str], str] = {}
    presets: dict[str, Preset] = {}
    packs: dict[str, Pack] = {}
    tool_sets: dict[str, ToolSet] = {}
    detectors: dict[str, Detector] = {}
    settings: dict[str, OrganisationSettings] = {}
    for path, each in sorted(good.items()):
        document = each.document
        if isinstance(document, Policy):
            policies[each.place.organisation_id].setdefault(document.policy_id, document)
            files.setdefault((each.place.organisation_id, document.policy_id), path)
        elif isinstance(document, Preset):
            presets.setdefault(document.preset_id, document)
        elif isinstance(document, Pack):
            packs.setdefault(document.pack_id, document)
        elif isinstance(document, ToolSet):
            tool_sets[path] = document
        elif isinstance(document, Detector):
            detectors[path] = document
        else:
            settings[each.place.organisation_id] = document
    return Checkout(
        contents,
        dict(policies),
        files,
        presets,
        packs,
        tool_sets,
        detectors,
        settings,
        tuple(tests),
        tuple(sorted_problems(found)),
    )


def wanted(path: str) -> bool:
    """False for a file that means nothing here."""
    return is_test(path) or not ignored(path)


def _organisation(path: str) -> str:
    """Whose policies a test is about: those of the folder it stands in."""
    try:
        return place_of(path).organisation_id
    except DocumentError:
        return DEFAULT
