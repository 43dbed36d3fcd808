// BullMQ: a tree is a flow, a parent job with five children. The verbs are those of ../program.py.
// BullMQ also carries and executes the jobs, and takes over those of a worker that stalled.
import { fork } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { FlowProducer, Job, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const MESSAGES = 5, WORKERS = 2, CONCURRENCY = 50;
const [verb, argument] = process.argv.slice(2);
const url = process.env.BENCH_URL;
const connect = () => new Redis(url, { maxRetriesPerRequest: null });
const client = connect();

const flow = (tree, expected) => ({
  name: "done", queueName: "trees", data: { tree, expected },
  children: Array.from({ length: MESSAGES }, (_, number) => (
    { name: "message", queueName: "messages", data: { tree, number } })),
});

async function work() {
  process.on("disconnect", () => process.exit()); // the program that forked it has ended
  await new Promise(() => {
    new Worker("messages", async ({ data }) => {
      if (verb === "stuck" && data.tree === 0 && data.number === 0
        && await client.incr("bench:begun") === 1) await sleep(3_600_000);
    }, { connection: connect(), concurrency: CONCURRENCY });
    new Worker("trees", async ({ data }) => {
      await client.set(`bench:done:${data.tree}`, 1);
      if (await client.incr("bench:done") === data.expected) await client.rpush("bench:finished", 1);
    }, { connection: connect(), concurrency: CONCURRENCY });
  });
}

const start = (verb) => fork(process.argv[1], [verb], { stdio: "ignore" });

async function end(worker, how) {
  if (worker.exitCode !== null || worker.signalCode !== null) return;
  const ended = new Promise((resolve) => worker.once("exit", resolve));
  worker.kill(how);
  await ended;
}

async function commands() {
  await client.echo("bench:end");
  const lines = (await client.info("commandstats")).matchAll(/calls=(\d+)/g);
  return [...lines].reduce((sum, [, calls]) => sum + Number(calls), 0);
}

async function emit(producer, trees) {
  // addBulk takes many flows in one pipeline.
  for (let first = 0; first < trees; first += 100) {
    const count = Math.min(100, trees - first);
    await producer.addBulk(Array.from({ length: count }, (_, each) => flow(first + each, trees)));
  }
}

async function speed(producer, trees) {
  const workers = Array.from({ length: WORKERS }, () => start("work"));
  const waiting = connect();
  try {
    await emit(producer, 100);
    if (!await waiting.blpop("bench:finished", 60)) throw new Error("no first trees within 60 s");
    await client.del("bench:done");
    await client.config("RESETSTAT");
    await client.echo("bench:begin");
    const began = performance.now();
    await emit(producer, trees);
    if (!await waiting.blpop("bench:finished", 300)) throw new Error("not complete within 300 s");
    return { seconds: (performance.now() - began) / 1000, commands: await commands() };
  } finally {
    await Promise.all(workers.map((worker) => end(worker, "SIGKILL")));
  }
}

async function seen(tree, parent) {
  if (await client.get(`bench:done:${tree}`)) {
    return { kind: "redelivered", words: "the tree is complete" };
  }
  const jobs = await new Queue("messages", { connection: client }).getFailed();
  const failed = jobs.find((job) => job.data.tree === tree)
    ?? await Job.fromId(new Queue("trees", { connection: client }), parent.job.id);
  return failed?.failedReason ? { kind: "error", words: failed.failedReason } : null;
}

async function lose(producer, wait) {
  const dropped = await producer.add(flow(1, 0));
  const id = await client.lpop("bull:messages:wait");
  if (id === null) throw new Error("bull:messages:wait is empty: no message to lose");
  const killed = await producer.add(flow(0, 0));
  const doomed = start("stuck");
  const limit = performance.now() + 60_000;
  while (!await client.get("bench:begun")) {
    if (performance.now() > limit) throw new Error("no worker took a message within 60 s");
    await sleep(50);
  }
  await end(doomed, "SIGKILL");
  const second = start("stuck");
  const trees = { killed: [0, killed], dropped: [1, dropped] };
  const found = {};
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  try {
    while (Object.keys(found).length < 2 && elapsed() < wait) {
      for (const [how, [tree, parent]] of Object.entries(trees)) {
        const what = found[how] ? null : await seen(tree, parent);
        if (what) found[how] = { ...what, after_s: Math.round(elapsed() * 10) / 10 };
      }
      await sleep(200);
    }
  } finally {
    await end(second, "SIGKILL");
  }
  const nothing = { kind: "nothing", words: "", after_s: wait };
  return { killed: found.killed ?? nothing, dropped: found.dropped ?? nothing };
}

if (verb === "work" || verb === "stuck") await work();
const producer = new FlowProducer({ connection: connect() });
const verbs = { speed, lose, pending: emit };
const result = await verbs[verb](producer, Number(argument));
if (result) console.log(JSON.stringify(result));
process.exit(0);
