// A service in Node, with the faults that such programs have.
//
// node portal.js leak|ok SEED FAULT
const { EventEmitter } = require("events");

const leaks = process.argv[2] === "leak";
const history = [];
const buffers = [];
const bus = new EventEmitter();
bus.setMaxListeners(0);

function body(count) {
  return Array.from({ length: 600 }, (_, row) => "row " + row + " of " + count);
}

const faults = {
  // Requests are kept for a report that is never written.
  history(count) {
    history.push(body(count));
    if (!leaks) history.length = 0;
  },
  // Each request listens for changes of the configuration.
  listeners(count) {
    const page = body(count);
    const changed = () => page.length;
    bus.on("changed", changed);
    if (!leaks) bus.off("changed", changed);
  },
  // Uploads outside V8's heap.
  buffers(count) {
    if (leaks || buffers.length === 0) buffers.push(Buffer.alloc(20000));
    buffers[buffers.length - 1].fill(count);
  },
  // Not a leak: garbage.
  garbage(count) {
    body(count);
  },
};

const handle = faults[process.argv[4]];
// Past the first collections, which start small.
for (let i = 0; i < 5000; i++) body(i);
let count = 0;
setInterval(() => {
  handle(++count);
  if (count === 150) console.log("serving");
}, 20);
