// Uploads that are kept, while thousands of others a second are replaced, also by a worker.
//
// node buffers.js ADDRESS.so
const { Worker, isMainThread } = require("worker_threads");

const kept = [];
const churn = new Array(500).fill(null);

function replace() {
  for (let count = 0; count < 200; count++) {
    const at = Math.floor(Math.random() * churn.length);
    churn[at] = { name: "upload " + at, bytes: Buffer.alloc(5000 + at), others: [at, { at }] };
  }
  setImmediate(replace);
}

if (isMainThread) {
  const loaded = { exports: {} };
  process.dlopen(loaded, process.argv[2]);
  for (let count = 0; count < 1000; count++) kept.push(Buffer.alloc(20000, count));
  setInterval(() => kept.push(Buffer.alloc(20000)), 10);
  new Worker(__filename);
  const sought = kept.filter((_, at) => at % 60 === 0).map((buffer) => "--address=" + loaded.exports(buffer));
  console.log(["ready", ...sought].join(" "));
  process.stdin.on("end", () => process.exit()).resume();
}
replace();
