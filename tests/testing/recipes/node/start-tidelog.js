const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { mkdtempSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { ask } = require("./tidelog.js");

module.exports = async () => {
  const data = mkdtempSync(join(tmpdir(), "tidelog"));
  const broker = spawn(
    "tidelog",
    ["serve", "--port", "0", "--data-dir", data, "--test-control", "--stop-at-eof", "--log-level", "warning"],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  await Promise.race([
    once(broker.stdout, "data"), // it says something when it is ready
    once(broker, "exit").then(([status]) => Promise.reject(new Error(`tidelog did not start: ${status}`))),
  ]);
  globalThis.tidelog = { broker, data };
  process.env.TIDELOG_CONTROL = join(data, ".control");
  process.env.TIDELOG_BOOTSTRAP = (await ask({ do: "hello" })).bootstrap;
};
