"""What a disk holds, what of it is certain, and what a crash may leave of the rest.

Owns: files and folders by number, the changes to each that no sync has covered, and the states that may be found after
a crash. Refuses to know: calls, descriptors, paths, and whose files they are.

A file is the list of its contents since its last sync. After a crash its size is that of any of them, and each of its
sectors holds what it held in any of them (a sector is on disk as it was at one moment: the cache has one copy of it),
or zeros where the size is certain and the data is not. A folder is its names at its last sync and the changes since: a
prefix of them is kept, or, as not every file system keeps the order, a prefix but for one. Files and folders are
independent of each other. A file whose name is not there is not there.

After a sync that failed, the data that it was to write counts as clean and may be lost for ever, whatever a later
sync says, until it is written again, or read again from the disk.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

SECTOR_BYTES = 512
ROOT = 0


class Entry(NamedTuple):
    """A file of a tree; without data, a folder."""

    path: str
    data: bytes | None
    modified_ms: int


class Tree(NamedTuple):
    """Everything on a disk that was not in use, by path; and the catalogue, whose changes are whole and at once."""

    entries: tuple[Entry, ...] = ()
    catalogue: Any = None

    def digest(self) -> bytes:
        """Return what stands for the content: names, bytes and the catalogue, not times."""
        digest = blake2b(digest_size=12)
        for path, data, _ in self.entries:
            digest.update(b"%d %s %d " % (data is None, path.encode(), len(data or b"")))
            digest.update(data or b"")
        digest.update(repr(self.catalogue).encode())
        return digest.digest()

    def files(self) -> dict[str, bytes]:
        """Return the files alone."""
        return {path: data for path, data, _ in self.entries if data is not None}


class Op(NamedTuple):
    """One change to a disk, or one promise of it; `what` says which of the others mean something."""

    what: str  # link, unlink, rename, write, sync, fail-sync, sync-all, forget, catalogue
    number: int = ROOT
    name: str = ""
    other: Any = None  # link: number of the child; rename: the new name; write: the range; forget: a position
    data: bytes | None = None
    modified_ms: int = 0


class Version(NamedTuple):
    """The content of a file at a moment."""

    data: bytes
    modified_ms: int


class FileNode:
    """A file: `versions[0]` is on disk, the last one is what is read."""

    __slots__ = ("dropped", "versions")

    def __init__(self, version: Version) -> None:
        self.versions = [version]
        self.dropped: set[int] = set()  # sectors that a failed sync gave up

    def clone(self) -> "FileNode":
        """Return a file like this one."""
        other = FileNode(self.versions[0])
        other.versions, other.dropped = self.versions[:], set(self.dropped)
        return other

    def write(self, op: Op) -> None:
        """Have another content."""
        start, end = op.other
        if self.dropped:
            self.dropped.difference_update(range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)))
        assert op.data is not None
        self.versions.append(Version(op.data, op.modified_ms))

    def sync(self) -> None:
        """Make the latest content certain, but for what a failed sync dropped."""
        latest = self.versions[-1]
        if not self.dropped:
            self.versions = [latest]
            return
        count = -(-len(latest.data) // SECTOR_BYTES)
        certain = self.versions[0].data
        sectors = [_sector(certain if n in self.dropped else latest.data, n) for n in range(count)]
        self.versions = [Version(_joined(sectors, len(latest.data)), latest.modified_ms), latest]

    def fail_sync(self) -> None:
        """Count what is not certain as clean."""
        certain, latest = self.versions[0].data, self.versions[-1].data
        for n in range(-(-len(latest) // SECTOR_BYTES)):
            if _sector(certain, n) != _sector(latest, n):
                self.dropped.add(n)

    def forget(self, position: int) -> None:
        """Read what a failed sync gave up from the disk again, in the sectors that lie wholly behind a position."""
        again = {n for n in self.dropped if n * SECTOR_BYTES >= position}
        certain = self.versions[0].data
        if again:
            # What is read is what the disk has: no crash makes anything else of it.
            self.versions = [
                Version(
                    _joined(
                        [
                            _sector(certain if n in again else data, n)
                            for n in range(-(-len(data) // SECTOR_BYTES))
                        ],
                        len(data),
                    ),
                    modified_ms,
                )
                for data, modified_ms in self.versions
            ]
            self.dropped -= again


class FolderNode:
    """A folder: its names on disk, the changes since, and the names that are seen."""

    __slots__ = ("certain", "changes", "names")

    def __init__(self, names: dict[str, int] | None = None) -> None:
        self.names = names or {}
        self.certain = dict(self.names)
        self.changes: list[Op] = []

    def clone(self) -> "FolderNode":
        """Return a folder like this one."""
        other = FolderNode(dict(self.names))
        other.certain, other.changes = dict(self.certain), self.changes[:]
        return other

    def sync(self) -> None:
        """Make the names certain."""
        self.certain = dict(self.names)
        self.changes = []

    def after(self, kept: Iterable[Op]) -> dict[str, int]:
        """Return the names with these changes."""
        names = dict(self.certain)
        for op in kept:
            _rename(names, op)
        return names


def _rename(names: dict[str, int], op: Op) -> None:
    if op.what == "link":
        names[op.name] = op.other
    else:
        number = names.pop(op.name, None)
        if op.what == "rename" and number is not None:
            names[op.other] = number


class Image:
    """A disk as a whole. `apply` is all that changes it."""

    def __init__(self, tree: Tree) -> None:
        """Hold a tree, all of it certain."""
        self.nodes: dict[int, FileNode | FolderNode] = {ROOT: FolderNode()}
        self.catalogue = tree.catalogue
        folders = {"": ROOT}
        for path, data, modified_ms in tree.entries:
            number = len(self.nodes)
            above, _, name = path.rpartition("/")
            if data is None:
                self.nodes[number] = FolderNode()
                folders[path] = number
            else:
                self.nodes[number] = FileNode(Version(data, modified_ms))
            self.folder(folders[above]).names[name] = number
        for node in self.nodes.values():
            if isinstance(node, FolderNode):
                node.sync()

    def clone(self) -> "Image":
        """Return a disk like this one, with what is not certain as it is."""
        other = Image(Tree(catalogue=self.catalogue))
        other.nodes = {number: node.clone() for number, node in self.nodes.items()}
        return other

    @property
    def has_given_up(self) -> bool:
        """Tell whether a failed sync has left data that is seen and not on disk."""
        return any(isinstance(node, FileNode) and node.dropped for node in self.nodes.values())

    def folder(self, number: int) -> FolderNode:
        """Return a node that is a folder."""
        node = self.nodes[number]
        assert isinstance(node, FolderNode)
        return node

    def file(self, number: int) -> FileNode:
        """Return a node that is a file."""
        node = self.nodes[number]
        assert isinstance(node, FileNode)
        return node

    def apply(self, op: Op) -> None:
        """Change the disk."""
        if op.what == "write":
            self.file(op.number).write(op)
        elif op.what == "sync":
            self.nodes[op.number].sync()
        elif op.what in ("link", "unlink", "rename"):
            if op.what == "link" and op.other not in self.nodes:
                is_file = op.data is not None
                self.nodes[op.other] = FileNode(Version(b"", op.modified_ms)) if is_file else FolderNode()
            folder = self.folder(op.number)
            _rename(folder.names, op)
            folder.changes.append(op)
        elif op.what == "sync-all":
            for node in self.nodes.values():
                node.sync()
        elif op.what == "fail-sync":
            for node in self.nodes.values() if op.other == "all" else [self.nodes[op.number]]:
                if isinstance(node, FileNode):
                    node.fail_sync()
        elif op.what == "forget":
            self.file(op.number).forget(op.other)
        elif op.what == "catalogue":
            self.catalogue = op.other
        else:
            raise AssertionError(op)

    def tree(self, loss: "Loss | None" = None) -> Tree:
        """Return what is there now, or what a crash leaves of it."""
        loss = loss or Loss()
        loss.begin(
            [n for n, node in self.nodes.items() if isinstance(node, FileNode) and len(node.versions) > 1]
        )
        found: list[Entry] = []

        def walk(number: int, above: str) -> None:
            node = self.nodes[number]
            if isinstance(node, FileNode):
                found.append(Entry(above, *loss.content(above, number, node)))
                return
            if above:
                found.append(Entry(above, None, 0))
            names = loss.names(above, node)
            for name in sorted(names):
                walk(names[name], f"{above}/{name}" if above else name)

        walk(ROOT, "")
        return Tree(tuple(found), self.catalogue)


class Loss:
    """What a crash takes: nothing, as a kill of the process. `account`, if given, is told of each thing that goes."""

    def __init__(self, account: Callable[[str], None] | None = None) -> None:
        self.account = account

    def begin(self, uncertain: list[int]) -> None:
        """Look at which files there is something to take of."""

    def content(self, path: str, number: int, node: FileNode) -> Version:
        """Return what is left of a file."""
        return node.versions[-1]

    def names(self, path: str, node: FolderNode) -> dict[str, int]:
        """Return what is left of a folder."""
        return node.names

    def tell(self, words: str) -> None:
        """Account for something."""
        if self.account is not None:
            self.account(words)


class PowerCut(Loss):
    """A crash of the machine: `data` and `names` say how much is taken of files and of folders, or "any"."""

    def __init__(
        self,
        rng: random.Random,
        data: str = "any",
        names: str = "any",
        account: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(account)
        self.rng, self.data, self.name_kind = rng, data, names
        self.odd = -1

    def begin(self, uncertain: list[int]) -> None:
        """Now and then let one file differ from all others: it alone is lost, or it alone is kept."""
        if self.data == "any" and uncertain and self.rng.random() < 0.4:
            self.odd = self.rng.choice(uncertain)
            self.data = self.rng.choice(("all", "all", "none"))

    def content(self, path: str, number: int, node: FileNode) -> Version:
        versions = node.versions
        if len(versions) == 1:
            return versions[0]
        kind = self.data
        if number == self.odd:
            kind = "all" if kind == "none" else self.rng.choice(("none", "prefix", "torn"))
        if kind == "any":
            kind = self.rng.choices(("all", "none", "prefix", "zeros", "torn"), (30, 20, 15, 10, 25))[0]
        found = getattr(self, f"_{kind}")(versions)
        if found != versions[-1]:
            self.tell(
                f"{path}: {kind} of {len(versions) - 1} writes kept, "
                f"{len(found.data)} bytes of {len(versions[-1].data)}"
            )
        return found

    def _all(self, versions: list[Version]) -> Version:
        return versions[-1]

    def _none(self, versions: list[Version]) -> Version:
        return versions[0]

    def _prefix(self, versions: list[Version]) -> Version:
        return self.rng.choice(versions)

    def _zeros(self, versions: list[Version]) -> Version:
        size = len(versions[-1].data)
        return Version(versions[0].data[:size].ljust(size, b"\0"), versions[-1].modified_ms)

    def _torn(self, versions: list[Version]) -> Version:
        rng = self.rng
        size = rng.choice(versions)
        count = -(-len(size.data) // SECTOR_BYTES)
        if rng.random() < 0.5:  # all sectors of one moment, one of another
            main, other, odd = rng.choice(versions), rng.choice(versions), rng.randrange(max(1, count))
            sectors = [_sector((other if n == odd else main).data, n) for n in range(count)]
        else:
            sectors = [_sector(rng.choice(versions).data, n) for n in range(count)]
        return Version(_joined(sectors, len(size.data)), size.modified_ms)

    def names(self, path: str, node: FolderNode) -> dict[str, int]:
        changes = node.changes
        if not changes:
            return node.names
        kind = self.name_kind
        if kind == "any":
            kind = self.rng.choices(("all", "none", "prefix", "hole"), (45, 15, 20, 20))[0]
        if kind == "all":
            return node.names
        kept = [] if kind == "none" else changes[: self.rng.randrange(len(changes) + 1)]
        if kind == "hole":
            if self.rng.random() < 0.5:
                kept = changes[:]
            if kept:
                del kept[self.rng.randrange(len(kept))]
        lost = [f"{op.what} {op.name}" for op in changes if op not in kept]
        if lost:
            self.tell(f"{path or '.'}: lost {', '.join(lost)}")
        return node.after(kept)


def _sector(data: bytes, number: int) -> bytes:
    return data[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")


def _joined(sectors: list[bytes], size: int) -> bytes:
    return b"".join(sectors)[:size].ljust(size, b"\0")


# The states that are always looked at; every other is drawn.
KILLED = "kill"
_PLAIN = (KILLED, ("none", "none"), ("none", "all"), ("zeros", "all"), ("all", "none"))


def loss_of(choice: int, rng: random.Random, account: Callable[[str], None] | None = None) -> Loss:
    """Return loss number `choice`: 0 is a kill, the next few are plain power cuts, and the others are drawn."""
    if choice == 0:
        return Loss(account)
    if choice < len(_PLAIN):
        data, names = _PLAIN[choice]
        return PowerCut(rng, data, names, account)
    return PowerCut(rng, account=account)


def replay(start: Image, journal: list[Op]) -> Iterator[tuple[int, Image]]:
    """Yield the disk as it was before the first operation, and after each; it is good until the next."""
    image = start.clone()
    yield 0, image
    for number, op in enumerate(journal, 1):
        image.apply(op)
        yield number, image
