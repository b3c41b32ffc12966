"""The log on disk. Knows batches and files; nothing of requests, sockets or clocks.

The rest of the project sees these modules and no others; an import contract enforces it.

- `log_manager.LogManager` opens and locks a data folder, and owns its logs. Nothing else writes to the folder.
- `log.Log` is a partition: `append`, `read`, and its ends. One thread appends and any thread reads. A record can be
  read when `append` returns, and survives a crash once `recovery_point` is past it (`group_sync` flushes many logs).
- `sources`: a reader says what a read may cost. The event loop's reads raise NotInMemory or TakesLong; they never wait.
- `search.by_time`, `by_offset`, `time_range`, `lag` look up records; `search.explained` shows each step of a lookup.
  Answers are exact, and come from verified bytes.
- `read_only` opens a partition's folder beside a running broker, and changes nothing.
- `compaction.plan` says what is due, and `compaction.passes` compacts it, while other threads append and read.
  `compaction.reading` and `transactions` read batches as compaction does.
- `retention` says which segments expire, `scrub` verifies everything at intervals, `converted` serves older formats,
  `pins` keeps files for a reader, `importing` adopts a folder, `fsck` checks and repairs one that no broker has open.
- `cut` links the files of the logs as of one moment, beside a running broker; `backup` is a verified copy of them.
- `layout` and `checkpoints`: the names of a data folder's files, and the content of the small ones.
- `files` is the only module that touches the disk; `errors` has the exceptions; with `troubles`, a failure that lasts
  is logged once.

A method that returns a generator does a bounded step for each item. Leave the generator unfinished to cancel.
"""
