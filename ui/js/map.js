// What is wrong, and the map: data centers, links, nodes, keyspaces.

import { post } from './api.js';
import { chip, h, onWidth, put, s, section, table } from './dom.js';
import { bytes, count, span, time } from './format.js';
import { places } from './layout.js';

/** From here on a lag beyond the way itself is drawn as slow. In a keyspace of which nobody asks anything, servers speak every two seconds only, and lags come to some four. */
const SLOW_MS = 6000;

/** From here on what is under way makes a line thick; heartbeats stay below. */
const BUSY_BYTES = 4096;

/** Both directions between each pair of data centers, in the order of the cluster. */
export function pairs(status) {
  const names = status.data_centers.map((place) => place.name);
  const found = [];
  names.forEach((one, i) => names.slice(i + 1).forEach((other) => {
    const there = status.links.find((link) => link.from === one && link.to === other);
    const back = status.links.find((link) => link.from === other && link.to === one);
    if (!there && !back) return;
    const both = [there, back].filter(Boolean);
    const trips = both.map((link) => link.round_trip_us).filter((us) => us);
    const emulated = both.map((link) => link.emulated_ms).filter((ms) => ms !== null);
    const one_way_ms = trips.length ? Math.min(...trips) / 2000 : emulated.length ? Math.min(...emulated) : null;
    const worst_ms = Math.max(-1, ...both.map((link) => link.visible_ms ?? link.arrived_ms ?? -1));
    const cut = both.some((link) => link.cut);
    const down = !cut && both.some((link) => link.pairs > 0 && link.up === 0);
    const partly = !cut && !down && both.some((link) => link.up < link.pairs);
    const slow = worst_ms > SLOW_MS + (one_way_ms ?? 0) * 4;
    const state = cut ? ['grave', 'cut'] : down ? ['grave', 'not connected'] : partly ? ['mild', 'partly connected'] : slow ? ['mild', 'behind'] : ['good', 'connected'];
    found.push({ one, other, there, back, one_way_ms, measured: trips.length > 0, worst_ms, cut, down, state, under_way: both.reduce((sum, link) => sum + link.under_way_bytes + link.queued_bytes, 0) });
  }));
  return found;
}

/** Milliseconds from `from` to `to` and no further, as far as is known. */
export function oneWay(status, from, to) {
  const pair = pairs(status).find((pair) => (pair.one === from && pair.other === to) || (pair.one === to && pair.other === from));
  return pair?.one_way_ms ?? null;
}

function wrongs(status) {
  if (status.wrong.length === 0) return h('p', { class: 'well' }, chip('good', 'Nothing is wrong'), ` as of ${time(status.at_ms)}.`, status.quiet ? ' Nobody asks anything of the cluster, so its nodes speak seldom, and lags are larger than they need be.' : '');
  return h('ul', { class: 'wrong' }, status.wrong.map((one) => h('li', { class: one.grave ? 'grave' : 'mild' },
    h('div', {}, chip(one.grave ? 'grave' : 'mild', one.grave ? 'not served' : 'to look at'), ' ', h('strong', {}, one.what)), h('div', { class: 'next' }, one.next))));
}

function drawMap(status, width, kept) {
  const names = status.data_centers.map((place) => place.name);
  const all = pairs(status);
  const narrow = width < 520;
  const [padX, padY] = [narrow ? 50 : 90, 52];
  // Places stay where they are while delays change a little.
  const shape = `${width} ${names.join(' ')} ${all.map((pair) => Math.round(Math.log2(1 + (pair.one_way_ms ?? 0)) * 2)).join(' ')}`;
  if (kept.shape !== shape) {
    const delay = (i, j) => all.find((pair) => (pair.one === names[i] && pair.other === names[j]) || (pair.one === names[j] && pair.other === names[i]))?.one_way_ms ?? undefined;
    kept.shape = shape;
    const room = Math.max(110, Math.min(300, Math.round(width * 0.42)));
    const found = places(names.length, delay, width - 2 * padX, room);
    const [top, bottom] = [Math.min(...found.map(([, y]) => y)), Math.max(...found.map(([, y]) => y))];
    kept.places = found.map(([x, y]) => [x + padX, y - top + padY]);
    kept.height = bottom - top + 2 * padY;
  }
  const { height } = kept;
  const at = (name) => kept.places[names.indexOf(name)];
  const crowded = all.length > 10;
  const lines = [];
  const labels = [];
  for (const pair of all) {
    const [[x1, y1], [x2, y2]] = [at(pair.one), at(pair.other)];
    const [kind] = pair.state;
    const busy = pair.under_way >= BUSY_BYTES;
    lines.push(s('line', { x1, y1, x2, y2, class: `link ${kind}${pair.cut || pair.down ? ' broken' : ''}`, 'stroke-width': busy ? Math.min(8, 2 * Math.log10(pair.under_way) - 4) : 2 }));
    const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
    if (pair.cut || pair.down) {
      lines.push(s('g', { class: 'cutmark', transform: `translate(${mx} ${my}) rotate(${Math.atan2(y2 - y1, x2 - x1) * 180 / Math.PI})` },
        s('rect', { x: -13, y: -5, width: 26, height: 10, class: 'gap' }), s('path', { d: 'M-8 -8 L-4 8 M4 -8 L8 8' })));
    }
    if (crowded && kind === 'good') continue;
    const way = pair.one_way_ms === null ? 'way not measured yet' : `${span(pair.one_way_ms)} one way`;
    const second = pair.cut ? 'cut' : pair.down ? 'not connected' : `lag ${pair.worst_ms < 0 ? '?' : span(pair.worst_ms)}${busy ? `, ${bytes(pair.under_way)} under way` : ''}`;
    // Beside the line, outwards, and whole within the picture.
    const [dx, dy] = [x2 - x1, y2 - y1];
    const long = Math.hypot(dx, dy) || 1;
    const out = (mx - width / 2) * -dy + (my - height / 2) * dx >= 0 ? 1 : -1;
    const half = Math.max(way.length, second.length) * 3.3;
    const flat = Math.abs(dx) / long;
    const away = 20 * flat + (half + 10) * (1 - flat) + (flat < 0.98 ? 10 : 0);
    const lx = Math.max(half + 2, Math.min(width - half - 2, mx + (-dy / long) * out * away));
    const ly = Math.max(12, Math.min(height - 20, my + (dx / long) * out * away)) - 3;
    labels.push(s('text', { x: lx, y: ly, 'text-anchor': 'middle', class: `linklabel ${kind}` }, s('tspan', { x: lx, class: 'first' }, way), s('tspan', { x: lx, dy: '1.25em' }, second)));
  }
  const spots = status.data_centers.map((place) => {
    const [x, y] = at(place.name);
    const kind = place.answering === place.nodes ? 'good' : place.answering ? 'mild' : 'grave';
    const above = y <= height / 2;
    return s('g', { class: `spot ${kind}` },
      s('circle', { cx: x, cy: y, r: 15 }), s('text', { x, y: y + 4.5, 'text-anchor': 'middle', class: 'inside' }, place.answering === place.nodes ? place.nodes : `${place.answering}/${place.nodes}`),
      s('text', { x, y: above ? y - 24 : y + 32, 'text-anchor': 'middle', class: 'name' }, place.name));
  });
  const words = all.map((pair) => `${pair.one} and ${pair.other}: ${pair.state[1]}, ${pair.one_way_ms === null ? 'one-way delay not known' : `${span(pair.one_way_ms)} one way`}`);
  return s('svg', { class: 'map', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `Map. ${words.join('; ')}` }, lines, labels, spots);
}

function linkTable(status, session, change) {
  const rows = pairs(status).map((pair) => {
    const lag = (link) => (link ? span(link.visible_ms ?? link.arrived_ms) : '?');
    const label = `${pair.cut ? 'Resume' : 'Cut'} the link between ${pair.one} and ${pair.other}`;
    const fault = session.faults && h('button', { type: 'button', class: pair.cut ? 'small' : 'small danger', 'data-focus': `${pair.one} ${pair.other}`, 'aria-label': label, onclick: () => change(pair) }, pair.cut ? 'Resume' : 'Cut');
    return [`${pair.one} – ${pair.other}`, chip(...pair.state), ...(session.faults ? [fault] : []), [pair.one_way_ms === null ? '?' : `${pair.measured ? '' : '≈ '}${span(pair.one_way_ms)}`, 'number'],
      [lag(pair.there), 'number'], [lag(pair.back), 'number'], [bytes(pair.under_way), 'number']];
  });
  return table('Links between data centers', ['between', 'state', ...(session.faults ? [h('span', { class: 'hidden' }, 'change')] : []), ['one way', 'number'], ['lag →', 'number'], ['lag ←', 'number'], ['under way', 'number']], rows);
}

function placeTable(status) {
  const rows = status.data_centers.map((place) => {
    const behind = Object.entries(place.behind_ms).map(([from, ms]) => `${from} ${span(ms)}`).join(', ');
    return [h('strong', {}, place.name), [place.answering === place.nodes ? place.nodes : `${place.answering} of ${place.nodes}`, 'number'], [count(place.keys), 'number'], [bytes(place.memory_bytes), 'number'], [bytes(place.log_bytes), 'number'], [count(place.waiting), 'number'], behind || '–'];
  });
  return table('Data centers', ['data center', ['nodes', 'number'], ['keys', 'number'], ['memory', 'number'], ['log', 'number'], ['waiting', 'number'], 'behind the others by'], rows);
}

/** Where a node serves its own console, as a link; nothing where that is not known. */
function consoleOf(node) {
  try {
    const url = new URL(`${location.protocol}//${node.admin}/`);
    return node.admin ? h('a', { href: url.href, rel: 'noreferrer', 'data-focus': `node ${node.name}` }, node.name) : node.name;
  } catch {
    return node.name;
  }
}

function nodeTable(status) {
  const rows = status.nodes.map((node) => {
    const name = node.name === status.node ? h('span', {}, h('strong', {}, node.name), ' (this one)') : consoleOf(node);
    if (node.error !== undefined) return [name, node.data_center, chip('grave', 'does not answer'), ['–', 'number'], ['–', 'number'], ['–', 'number'], ['–', 'number'], node.error];
    const serves = Object.values(node.serves);
    const sum = (of) => serves.reduce((total, one) => total + one[of], 0);
    const state = node.clock_distrusted ? chip('grave', 'clock not believed') : node.disk_full ? chip('grave', node.disk_error ? 'cannot write' : 'disk full') : sum('failed') ? chip('grave', `${sum('failed')} failed`) : sum('leaderless') ? chip('grave', `${sum('leaderless')} without leader`) : chip('good', 'serves');
    const clocks = Object.values(node.clock_ahead_ms).map(Math.abs);
    return [name, node.data_center, state, [count(sum('servers')), 'number'], [count(sum('leads')), 'number'], [bytes(node.memory_bytes), 'number'], [count(node.waiting), 'number'], `up ${span(node.uptime_ms)}, clock within ${clocks.length ? span(Math.max(1, ...clocks)) : '?'}`];
  });
  return table('Nodes', ['node', 'data center', 'state', ['partition servers', 'number'], ['leads', 'number'], ['memory', 'number'], ['waiting', 'number'], 'since'], rows);
}

function keyspaceTable(status) {
  const rows = status.keyspaces.map((keyspace) => {
    const sum = (dc, of) => status.nodes.filter((node) => node.data_center === dc).reduce((total, node) => total + (node.serves?.[keyspace.name]?.[of] ?? 0), 0);
    const leads = status.data_centers.map((place) => [place.name, sum(place.name, 'leads')]).filter(([, leads]) => leads > 0);
    const leaderless = status.data_centers.reduce((total, place) => total + sum(place.name, 'leaderless'), 0);
    const state = leaderless ? chip('grave', `${leaderless} know no leader`) : keyspace.grouped ? leads.map(([name, leads]) => `${name} ${leads}`).join(', ') || 'none: they take turns' : 'each server by itself';
    return [[keyspace.number, 'number'], h('strong', {}, keyspace.name), keyspace.protocol, keyspace.level, [keyspace.replicas, 'number'], state];
  });
  return table('Keyspaces', [['no.', 'number'], 'keyspace', 'protocol', 'level', ['replicas', 'number'], 'leaders of its partitions'], rows);
}

export function mapPage(root, shared) {
  const [wrong, map, links, data, nodes, keyspaces] = Array.from({ length: 6 }, () => h('div'));
  const said = h('p', { class: 'error', role: 'alert' });
  const kept = {};
  let width = 0;
  const draw = () => { if (shared.status && width) put(map, drawMap(shared.status, width, kept)); };
  const change = async (pair) => {
    put(said);
    try {
      const { nodes: answers } = await post('link', { between: [pair.one, pair.other], cut: !pair.cut });
      const failed = answers.filter((answer) => answer.error);
      if (failed.length) put(said, `Not told: ${failed.map((answer) => `${answer.node} (${answer.error})`).join(', ')}.`);
    } catch (error) {
      put(said, error.message);
    }
  };
  const given = h('p', { class: 'note' });
  put(root, section('What is wrong', null, wrong, given),
    h('div', { class: 'two' }, section('Map', h('span', { class: 'note' }, 'distance is delay; the number is nodes'), map), section('Links', null, links, said,
      h('p', { class: 'note' }, 'One way is half of the last round trip that nodes measured. Lag: until when everything of the other side is visible here, by this side’s clock; → is from the first to the second. Under way: sent and not on disk there, or waiting to be sent.'))),
    section('Data centers', null, data), section('Nodes', null, nodes), section('Keyspaces', h('span', { class: 'note' }, shared.status ? `${shared.status.partitions} partitions` : ''), keyspaces));
  const watch = shared.watch((status) => {
    put(wrong, wrongs(status));
    const words = [];
    if (status.lost.length) words.push(`Lost for ever, and in none of this: ${status.lost.join(', ')}.`);
    if (status.removed.length) words.push(`Removed, and in none of this: ${status.removed.join(', ')}.`);
    if (status.free.length) words.push(`Nobody is there yet: ${status.free.join(', ')}.`);
    put(given, words.join(' '));
    put(links, linkTable(status, shared.session, change));
    put(data, placeTable(status));
    put(nodes, nodeTable(status));
    put(keyspaces, keyspaceTable(status));
    draw();
  });
  const sized = onWidth(map, (now) => { width = now; draw(); });
  return () => { watch(); sized(); };
}
