"""Consumer groups and their committed offsets.

A group divides the partitions of topics among its members, one member for each partition, and keeps an offset for each
partition. There are two protocols:

**Classic** (`classic`). A *generation* begins when members join. The group waits for all of them (JoinGroup). One of
them, the leader, assigns the partitions. Every member gets its assignment (SyncGroup) when it is on disk. Heartbeats
extend a member's session and tell it to rejoin. The whole group stops for each rebalance. Protocols and their metadata
are opaque bytes to the group, except for the topics that consumers subscribe to.

**Consumer** (`consumer`, KIP-848). Members send their subscriptions and the partitions they own in heartbeats, and the
broker assigns. A change of subscriptions, members or topics begins an *epoch*. The group makes a *target assignment*
for the newest epoch (`assignors`), on the maintenance thread if that takes long. Each member moves to its target on its
own: it revokes partitions first, then takes over the target's epoch, then gets partitions that other members have
released. A member with nothing to revoke never blocks the others.

**Migration** (`migration`). A classic group of consumers becomes a consumer group when a member joins by the consumer
protocol. It becomes classic again when the last such member leaves. In between, its classic members join, sync and
heartbeat as before, and their generation is their epoch.

**Offsets** (`offsets`) work alike in both kinds of group. A commit is stored with the id of its topic, so an offset of
a deleted topic does not apply to a later topic with the same name. Offsets expire when nobody reads their topic
(KIP-211).

**The log** (`log`, `consumer_records`). Groups and offsets are written to `__consumer_offsets`, in Kafka's formats. The
broker answers a request when its changes are on disk. Memory holds the state at the end of the log, and a start reads
it from there (`loading`). A change of a group is one batch, so a crash leaves all of it or nothing. A change that is
too large for one batch takes several, in an order from which a start can recover.

**Memory** (`memory`, `making_room`) is bounded, and one client address may hold half of it at most.

To follow a member from its join to its assignment, read five files. Classic: `handlers/join_group`,
`coordinator.group_to_join`, `classic.join`, `handlers/sync_group` and `classic.sync`, with `classic_member` for the
data. Consumer: `handlers/consumer_group_heartbeat`, `coordinator.consumer_group`, `consumer.consumer_heartbeat`,
`consumer_member.reconciled` and `assignors`.

A request that waits for other members is a coroutine that awaits a `Reply` (`services`). The group's timers and
callbacks do the work that other members depend on, so it goes on if the client that began it leaves.
"""
