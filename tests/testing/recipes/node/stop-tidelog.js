const { once } = require("node:events");
const { rmSync } = require("node:fs");

module.exports = async () => {
  const { broker, data } = globalThis.tidelog;
  broker.stdin.end(); // which stops it, as the end of this process would
  await once(broker, "exit");
  rmSync(data, { recursive: true });
};
