// The page of load: what one node works on. Operations that took long, keys that are asked most, who is connected.

import { post, repeat } from './api.js';
import { chip, h, put, section, table } from './dom.js';
import { bytes, count, short, shown, span, time } from './format.js';

const ROWS = 50;

/** A key, or what stands in the place of one. */
const keyOf = (key, more) => (key ? [h('code', {}, shown(key) || '(empty)'), more ? h('span', { class: 'note' }, ` and ${count(more)} more`) : null] : h('span', { class: 'absent' }, 'not known'));

function slowTable(slow, order) {
  const operations = [...slow.operations].sort((one, other) => (order === 'slowest' ? other.took_us - one.took_us : other.number - one.number)).slice(0, ROWS);
  const most = Math.max(1, ...operations.map((one) => one.took_us));
  const rows = operations.map((one) => [
    time(one.at_ms),
    [[h('span', {}, span(one.took_us / 1000)), h('span', { class: 'barback' }, h('span', { class: 'bar', 'data-share': Math.max(2, Math.round((100 * one.took_us) / most)) }))], 'took'],
    h('strong', {}, one.what.toUpperCase().replace('|', ' ')),
    [keyOf(one.key, one.keys - 1), 'keycell'],
    one.keyspace, one.level,
    [one.waited_for || h('span', { class: 'absent' }, 'nobody saw'), 'wide'],
    one.failed ? [h('span', { class: 'error' }, one.failed), 'wide'] : chip('good', one.requests > 1 ? `${one.requests} requests` : 'answered'),
    [one.client_name ? `${one.client_name} (${one.client})` : one.client, 'from'],
  ]);
  return table('Slow operations', ['ended', 'took', 'operation', 'key', 'keyspace', 'level', 'waited for', 'came to', 'from'], rows);
}

function hotTable(hot) {
  const seconds = Math.max(0.001, hot.window_ms / 1000);
  const asked = hot.reads + hot.writes;
  const rate = (number) => [short(number / seconds), 'number'];
  const rows = hot.keys.map((one) => {
    const all = one.reads + one.writes;
    const share = (100 * all) / Math.max(1, asked);
    return [[keyOf(one.key), 'keycell'], [[h('span', {}, `${share.toFixed(share < 10 ? 1 : 0)} %`), h('span', { class: 'barback' }, h('span', { class: 'bar', 'data-share': Math.max(1, Math.round(share)) }))], 'took'], rate(one.reads), rate(one.writes), rate(Math.max(0, all - one.error))];
  });
  const looked = hot.samples < asked ? `, of which ${count(hot.samples)} were looked at` : '';
  return h('div', {}, h('h3', {}, hot.keyspace), table(`Hot keys of ${hot.keyspace}`, ['key', 'share', ['reads/s', 'number'], ['writes/s', 'number'], ['at least/s', 'number']], rows),
    h('p', { class: 'note' }, `Keys were asked ${count(asked)} times in the last ${span(hot.window_ms)}${looked}.`));
}

function clientTable(clients) {
  const rows = clients.clients.slice(0, ROWS).map((one) => {
    const waits = one.pending && [h('strong', {}, one.pending.what.toUpperCase().replace('|', ' ')), ' ', one.pending.key ? keyOf(one.pending.key) : null, ` for ${span(one.pending.for_ms)}`, one.pending.waits_for ? h('div', { class: 'note' }, one.pending.waits_for) : null];
    const library = [one.library, one.library_version].filter(Boolean).join(' ');
    return [[one.id, 'number'], one.address, [one.name || '–', 'keycell'], one.authenticated ? one.user : chip('mild', 'not signed in'), one.keyspace, one.service_level || one.level, [span(one.age_ms), 'number'], [span(one.idle_ms), 'number'],
      one.last_command.toUpperCase().replace('|', ' ') || '–', waits ? [waits, 'wide'] : chip('plain', 'nothing'), [bytes(one.output_bytes), 'number'], library || '–'];
  });
  return table('Clients', [['no.', 'number'], 'address', 'name', 'user', 'keyspace', 'reads', ['age', 'number'], ['idle', 'number'], 'last command', 'waits for', ['unread', 'number'], 'library'], rows);
}

/** Bars as long as they say; the page's policy allows no styles in markup, scripts may set them. */
function stretch(element) {
  element.querySelectorAll('.bar[data-share]').forEach((bar) => { bar.style.width = `${bar.dataset.share}%`; });
}

const orElse = (part, draw) => (part.error ? h('p', { class: 'error' }, part.error) : draw(part));

/** What was told of a node, drawn into the three boxes. */
export function drawLoad(answer, order, { slow, hot, clients }) {
  put(slow, orElse(answer.slow, (part) => (part.operations.length
    ? [slowTable(part, order), h('p', { class: 'note' }, `The last ${part.operations.length} of ${count(part.counted)} that took ${span(part.threshold_ms)} or longer since the node started.`)]
    : h('p', { class: 'note' }, part.threshold_ms ? `No operation of this node's clients has taken ${span(part.threshold_ms)} or longer${part.counted ? ' since the list was emptied' : ''}.` : 'Slow operations are not kept here (limits.slow_operation_ms = 0).'))));
  put(hot, orElse(answer.hot, (part) => (part.keyspaces.length ? h('div', { class: 'cards' }, part.keyspaces.map(hotTable)) : h('p', { class: 'note' }, 'No key of this node was asked in the last minute.'))));
  put(clients, orElse(answer.clients, (part) => (part.clients.length
    ? [clientTable(part), part.connections > Math.min(ROWS, part.clients.length) ? h('p', { class: 'note' }, `${count(part.connections)} connections; those come first that wait longest.`) : null]
    : h('p', { class: 'note' }, 'Nobody is connected over RESP.'))));
  [slow, hot].forEach(stretch);
}

export function loadPage(root, shared) {
  const node = h('select', { name: 'node', 'aria-label': 'Node' });
  const order = h('select', { name: 'order', 'aria-label': 'Order' }, h('option', { value: 'newest' }, 'newest first'), h('option', { value: 'slowest' }, 'slowest first'));
  const said = h('p', { class: 'error', role: 'alert' });
  const boxes = { slow: h('div'), hot: h('div'), clients: h('div') };
  let [answer, names] = [null, ''];
  const draw = () => { if (answer) drawLoad(answer, order.value, boxes); };
  const ask = async () => {
    try {
      const asked = node.value;
      const told = await post('load', { node: asked });
      if (asked !== node.value) return;
      answer = told;
      put(said);
      draw();
    } catch (error) {
      put(said, error.message);
    }
  };
  const watch = shared.watch((status) => {
    const now = status.nodes.map((one) => one.name);
    if (now.join('\n') === names) return;
    names = now.join('\n');
    const chosen = node.value || shared.loadNode || shared.session.node;
    put(node, now.map((name) => h('option', { value: name, selected: name === chosen }, name === shared.session.node ? `${name} (this one)` : name)));
  });
  put(root, section('Load', h('span', { class: 'note' }, 'of one node, every two seconds'), h('form', { class: 'form', onsubmit: (event) => event.preventDefault() }, h('label', {}, 'Node', node), h('label', {}, 'Slow operations', order)), said),
    section('Slow operations', h('span', { class: 'note' }, 'of its clients: from the request to the answer, waiting included'), boxes.slow),
    section('Hot keys', h('span', { class: 'note' }, 'of its partition servers, whoever asks'), boxes.hot),
    section('Clients', h('span', { class: 'note' }, 'over RESP'), boxes.clients));
  let stop = repeat(2000, ask);
  node.addEventListener('change', () => { shared.loadNode = node.value; answer = null; Object.values(boxes).forEach((box) => put(box)); stop(); stop = repeat(2000, ask); });
  order.addEventListener('change', draw);
  return () => { stop(); watch(); };
}
