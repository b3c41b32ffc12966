// A member of a consumer group: as member.py, by kafkajs. node member.mjs BOOTSTRAP GROUP TOPIC SESSION_MS
import kafkajs from "kafkajs";

const { AssignerProtocol, Kafka, logLevel } = kafkajs;
const [bootstrap, groupId, topic, sessionMs] = process.argv.slice(2);

// kafkajs names its own assignor as no other client does: this one is Kafka's "range".
const range = ({ cluster }) => ({
  name: "range",
  version: 0,
  async assign({ members, topics }) {
    const names = members.map((member) => member.memberId).sort();
    const shares = Object.fromEntries(names.map((name) => [name, {}]));
    for (const each of topics) {
      const partitions = cluster.findTopicPartitionMetadata(each).map((found) => found.partitionId).sort((a, b) => a - b);
      const least = Math.floor(partitions.length / names.length);
      const oneMore = partitions.length % names.length;
      let next = 0;
      names.forEach((name, index) => {
        const count = least + (index < oneMore ? 1 : 0);
        shares[name][each] = partitions.slice(next, next + count);
        next += count;
      });
    }
    return names.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: 0, assignment: shares[memberId], userData: Buffer.alloc(0),
      }),
    }));
  },
  protocol({ topics }) {
    return {
      name: "range",
      metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
    };
  },
});

const say = (...words) => process.stdout.write(words.join(" ") + "\n");
const client = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
const consumer = client.consumer({
  groupId,
  sessionTimeout: Number(sessionMs),
  heartbeatInterval: Number(sessionMs) / 5,
  rebalanceTimeout: 10000,
  maxWaitTimeInMs: 100,
  partitionAssigners: [range],
});
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  const partitions = [...(payload.memberAssignment[topic] ?? [])].sort((a, b) => a - b);
  say("A", ...partitions);
});
await consumer.connect();
await consumer.subscribe({ topics: [topic], fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatchAutoResolve: false,
  eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
    if (!isRunning() || isStale() || batch.messages.length === 0) return;
    for (const message of batch.messages) {
      say("R", batch.partition, message.offset);
      resolveOffset(message.offset);
    }
    const offset = String(BigInt(batch.messages.at(-1).offset) + 1n);
    try {
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }]);
    } catch (error) {
      say("E", String(error));
      throw error;
    }
    say("C", batch.partition, offset);
  },
});
process.stdin.on("end", async () => {
  await consumer.disconnect();
  process.exit(0);
});
process.stdin.resume();
