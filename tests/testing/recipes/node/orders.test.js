const { Kafka, logLevel } = require("kafkajs");
const { ask } = require("./tidelog.js");

const kafka = new Kafka({ brokers: [process.env.TIDELOG_BOOTSTRAP], logLevel: logLevel.NOTHING });

test("an order is kept for a day", async () => {
  await ask({ do: "create_topic", name: "orders", config: { "retention.ms": "86400000" } });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "tea" }] });
  await producer.disconnect();

  await ask({ do: "advance", ms: 49 * 3600 * 1000 });

  const admin = kafka.admin();
  await admin.connect();
  const [orders] = await admin.fetchTopicOffsets("orders");
  await admin.disconnect();
  expect(orders).toMatchObject({ low: "1", high: "1" });
});
