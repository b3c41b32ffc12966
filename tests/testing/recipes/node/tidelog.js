const { connect } = require("node:net");
const { json } = require("node:stream/consumers");

// Has the broker do something, and returns its answer.
exports.ask = async (command) => {
  const control = connect(process.env.TIDELOG_CONTROL);
  control.end(JSON.stringify(command) + "\n");
  const answer = await json(control);
  if (!answer.ok) throw new Error(answer.error);
  return answer;
};
