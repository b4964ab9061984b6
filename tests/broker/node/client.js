// node client.js ENDPOINT [newer]: prints one line per outcome, the same for every broker; and with "newer" a line
// "= FEATURE: yes", or what happened instead, for those of RocketMQ 5.5.
'use strict';

const {
  ConsumeResult, FilterExpression, LitePushConsumerBuilder, Producer, PushConsumer, SimpleConsumer,
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

async function push(consumerGroup, topic, listener, expression = '*') {
  const made = new PushConsumer({
    ...client, consumerGroup, subscriptions: new Map([[ topic, expression ]]), messageListener: { consume: listener },
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

function same(name, expected, found) {
  say(name, expected === found ? 'yes' : `not ${expected}, but ${found}`);
}

async function newer() {
  const delaying = await producerOf('delayed');
  const recalling = await consumer('recalling', 'delayed', 'recalls');
  const due = Date.now() + 4_000;
  const later = (body, ms) => message('delayed', body, { tag: 'recalls', deliveryTimestamp: new Date(ms) });
  const { recallHandle } = await delaying.send(later('recalled', due));
  await delaying.recallMessage('delayed', recallHandle);
  await delaying.send(later('last', due + 1_500));
  same('recall', 'last', (await bodies(recalling, 1, 16)).join(' '));

  const jobs = await producerOf('jobs');
  // The client takes 0 for no priority.
  for (let priority = 1; priority < 4; priority++) await jobs.send(message('jobs', `p${priority}`, { priority }));
  same('priority', 'p3 p2 p1', (await bodies(await consumer('working', 'jobs', '*'), 3, 1)).join(' '));

  const ordering = await producerOf('ordered');
  await ordering.send(message('ordered', 'dead', { tag: 'deaths', messageGroup: 'g' }));
  await push('dying', 'ordered', async () => ConsumeResult.FAILURE, 'deaths');
  same('dead letters', 'dead', (await bodies(await consumer('burying', '%DLQ%dying', '*'), 1, 1)).join(' '));

  const got = new Set();
  const messageListener = {
    async consume(each) {
      got.add(`${each.liteTopic} ${each.body}`);
      return ConsumeResult.SUCCESS;
    },
  };
  const chatting = await new LitePushConsumerBuilder().setClientConfiguration(client).setConsumerGroup('chatting')
    .bindTopic('chats').setMessageListener(messageListener).build();
  await chatting.subscribeLite('ann');
  const chats = await producerOf('chats');
  for (const liteTopic of [ 'bob', 'ann' ]) await chats.send(message('chats', `to ${liteTopic}`, { liteTopic }));
  await until(() => got.size === 1);
  await chatting.subscribeLite('bob');
  await until(() => got.size === 2);
  same('Lite topics', 'ann to ann, bob to bob', [ ...got ].sort().join(', '));
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
  if (process.argv[3] === 'newer') await newer();
  say('end', 'reached');
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
