// node client.js ENDPOINT: prints one line per outcome, the same for every broker.
'use strict';

const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const PATIENCE_MS = 90_000;
const INVISIBLE_MS = 20_000;
const endpoints = process.argv[2];
const logger = { info() {}, debug() {}, warn: console.error, error: console.error, close() {} };
const client = { endpoints, namespace: '', logger, requestTimeout: 10_000 };

function say(name, value) {
  console.log(`= ${name}: ${value}`);
}

function message(topic, body, more = {}) {
  return { topic, body: Buffer.from(body), ...more };
}

async function until(isSo) {
  for (const end = Date.now() + PATIENCE_MS; !isSo() && Date.now() < end;) {
    await new Promise(done => setTimeout(done, 10));
  }
}

// One for each topic: the client misses the first settings of a broker while it asks for further routes.
async function producerOf(topic, checker) {
  const made = new Producer({ ...client, topics: [ topic ], checker });
  await made.startup();
  return made;
}

async function consumer(consumerGroup, topic, expression) {
  const subscriptions = new Map([[ topic, expression ]]);
  const made = new SimpleConsumer({ ...client, consumerGroup, subscriptions, awaitDuration: 3000 });
  await made.startup();
  return made;
}

// At least one message.
async function receive(from, limit) {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end;) {
    const got = await from.receive(limit, INVISIBLE_MS);
    if (got.length > 0) return got;
  }
  throw new Error('no message came');
}

// Receives and acknowledges messages until there are so many different ones.
async function bodies(from, count, limit) {
  const found = new Set();
  while (found.size < count) {
    for (const each of await receive(from, limit)) {
      found.add(each.body.toString());
      await from.ack(each);
    }
  }
  return [ ...found ];
}

async function push(consumerGroup, topic, listener) {
  const made = new PushConsumer({
    ...client, consumerGroup, subscriptions: new Map([[ topic, '*' ]]), messageListener: { consume: listener },
  });
  await made.startup();
}

async function filtered(producer) {
  for (let i = 0; i < 20; i++) {
    const more = { tag: `t${i % 2}`, keys: [ `k${i}` ], properties: new Map([[ 'n', `${i}` ]]) };
    await producer.send(message('normal', `m${String(i).padStart(2, '0')}`, more));
  }
  const got = new Set();
  let attempt = 0;
  await push('pushing', 'normal', async each => {
    const body = each.body.toString();
    if (body === 'm03' && each.deliveryAttempt === 1) return ConsumeResult.FAILURE;
    if (body === 'm03') attempt = each.deliveryAttempt;
    got.add(body);
    return ConsumeResult.SUCCESS;
  });
  await until(() => got.size === 20);
  say('push consumer', `${got.size}, m03 at attempt ${attempt}`);
  say('tags', (await bodies(await consumer('tags', 'normal', 't1'), 10, 16)).sort().join(' '));
  const properties = await consumer('properties', 'normal', new FilterExpression('n > 16', FilterType.SQL));
  say('properties', (await bodies(properties, 3, 16)).sort().join(' '));
}

async function changed(producer) {
  const from = await consumer('changing', 'normal', 'late');
  const properties = new Map([[ 'p', 'ü' ]]);
  await producer.send(message('normal', 'once more', { tag: 'late', keys: [ 'a', 'b' ], properties }));
  const [ first ] = await receive(from, 1);
  await from.changeInvisibleDuration(first, 10_000);
  const [ second ] = await receive(from, 1);
  say('changed', `${second.body}, attempt ${second.deliveryAttempt}, keys [${second.keys.join(' ')}], ` +
    `tag ${second.tag}, p ${second.properties.get('p')}`);
  await from.ack(second);
}

async function ordered(producer) {
  for (let i = 0; i < 20; i++) {
    await producer.send(message('ordered', `${i}`, { messageGroup: 'one' }));
  }
  say('ordered', (await bodies(await consumer('ordering', 'ordered', '*'), 20, 4)).join(' '));
  const order = [];
  await push('pushing-in-order', 'ordered', async each => {
    order.push(each.body.toString());
    return ConsumeResult.SUCCESS;
  });
  await until(() => order.length >= 20);
  say('pushed in order', order.join(' '));
}

async function delayed(producer) {
  const from = await consumer('delaying', 'delayed', '*');
  const due = Date.now() + 4_000;
  await producer.send(message('delayed', 'later', { deliveryTimestamp: new Date(due) }));
  const [ got ] = await receive(from, 1);
  // RocketMQ delivers by whole seconds.
  say('delayed', `${got.body}, early ${Date.now() < due - 1000}`);
  await from.ack(got);
}

async function transactions(producer, checks) {
  for (const outcome of [ 'committed', 'rolled back', 'left open' ]) {
    const transaction = producer.beginTransaction();
    await producer.send(message('half', outcome), transaction);
    if (outcome === 'committed') await transaction.commit();
    if (outcome === 'rolled back') await transaction.rollback();
  }
  const got = await bodies(await consumer('halves', 'half', '*'), 2, 16);
  say('transactions', `${got.sort().join(' ')}, checked ${checks.length > 0}`);
}

async function main() {
  const producer = await producerOf('normal');
  await filtered(producer);
  await changed(producer);
  await ordered(await producerOf('ordered'));
  await delayed(await producerOf('delayed'));
  const checks = [];
  const checker = {
    async check(each) {
      checks.push(each);
      // RocketMQ's broker also asks about one that has just been ended.
      return each.body.toString() === 'rolled back' ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
    },
  };
  await transactions(await producerOf('half', checker), checks);
  const refused = await producer.send(message('no such topic', 'x')).then(() => 'was taken', () => 'was refused');
  say('a topic of a bad name', refused);
  say('end', 'reached');
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
