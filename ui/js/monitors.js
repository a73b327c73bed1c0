// The page of monitors: predicates that must always be true, and violations with their evidence.

import { get, repeat } from './api.js';
import { chip, h, onWidth, put, s, section, table } from './dom.js';
import { shown, time } from './format.js';

/** The states that violate a predicate together: when each stood, by the clock of its server. */
function evidence(event, width) {
  const rows = event.evidence;
  const [left, right, high, top] = [Math.min(150, width * 0.34), 14, 34, 8];
  const from = rows.map((row) => row.from?.millis ?? event.at_ms);
  const until = rows.map((row) => row.until?.millis ?? null);
  const begin = Math.min(...from);
  const known = [...from, ...until.filter((t) => t !== null), event.since?.millis ?? begin];
  const last = Math.max(...known);
  const end = last + Math.max(20, (last - begin) * 0.25);
  const x = (t) => left + ((t - begin) / (end - begin || 1)) * (width - left - right);
  const height = top + rows.length * high + 22;
  const since = event.since?.millis;
  const together = [Math.max(...from), Math.min(end, ...until.map((t) => t ?? end))];
  const words = rows.map((row) => `${shown(row.variable)} = ${shown(row.value) || 'nothing'} in ${row.data_center} from ${row.from ? time(row.from.millis) : '?'}${row.until ? ` until ${time(row.until.millis)}` : ''}`);
  return s('svg', { class: 'evidence diagram', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': words.join('; ') },
    together[0] < together[1] ? s('rect', { x: x(together[0]), y: top - 4, width: x(together[1]) - x(together[0]), height: rows.length * high + 4, class: 'since' }, s('title', {}, 'all of them stood')) : null,
    rows.map((row, index) => {
      const y = top + index * high + 16;
      const [x1, x2] = [x(from[index]), x(until[index] ?? end)];
      return [s('text', { x: 0, y: y + 4, class: 'lanename' }, row.data_center), s('line', { x1: left, x2: width - right, y1: y, y2: y, class: 'lane' }),
        s('rect', { x: x1, y: y - 7, width: Math.max(2, x2 - x1), height: 14, rx: 2, class: 'span' }), s('line', { x1, x2: x1, y1: y - 9, y2: y + 9, class: 'edge' }),
        until[index] === null ? null : s('line', { x1: x2, x2, y1: y - 9, y2: y + 9, class: 'edge' }),
        s('text', { x: x1 > width - 110 ? x1 - 5 : x1 + 6, 'text-anchor': x1 > width - 110 ? 'end' : 'start', y: y + 4, class: 'state' }, `${shown(row.variable)} = ${shown(row.value) || '(nothing)'}`.slice(0, 40))];
    }),
    s('text', { x: 0, y: height - 5, class: 'tick' }, time(begin)), s('text', { x: width - right, y: height - 5, 'text-anchor': 'end', class: 'tick' }, since && since > begin ? `violated since ${time(since)}` : ''));
}

export function monitorsPage(root, shared) {
  const [watched, events] = [h('div'), h('div')];
  const said = h('p', { class: 'error', role: 'alert' });
  let [width, answer, shape] = [0, null, ''];
  const draw = () => {
    if (!answer || !width) return;
    const rows = answer.monitors.map((one) => [h('strong', {}, one.name), one.keyspace, [h('code', {}, one.expression), 'wide'], one.kind, one.node || 'every node a part']);
    put(watched, rows.length ? table('Predicates', ['name', 'keyspace', 'must always be true', 'kind', 'watched at'], rows) : h('p', { class: 'note' }, "Nothing is watched for. `rheostat ctl monitor add nolap '!(lock_a = 1 && lock_b = 1)' --keyspace eventual` adds a predicate."));
    // What is told again under its number is news of the same violation.
    const newest = new Map(answer.events.map((event) => [`${event.node} ${event.number} ${event.gap ?? ''}`, event]));
    const told = [...newest.values()].sort((one, other) => other.at_ms - one.at_ms).map((event) => h('article', {}, h('h3', {}, time(event.at_ms), ' ', event.gap ? chip('mild', 'a gap') : chip(event.verdict === 'violated' ? 'grave' : 'mild', event.verdict === 'violated' ? 'violated' : 'possibly violated'), ` ${event.monitor || 'all predicates'} `, h('span', { class: 'note' }, `${event.keyspace} · ${event.node} no. ${event.number}`)),
      event.gap ? h('p', {}, event.gap) : [evidence(event, width), event.more ? h('p', { class: 'note' }, `${event.more} more states are part of it.`) : null]));
    put(events, told.length ? told : h('p', { class: 'note' }, 'No violation has been told since this node started.'));
  };
  const stop = repeat(2000, async () => {
    try {
      const next = await get('monitors');
      put(said);
      const now = JSON.stringify([next.monitors, next.events]);
      answer = next;
      if (now !== shape) draw();
      shape = now;
    } catch (error) {
      put(said, error.message);
    }
  });
  put(root, section('Predicates', null, watched, said), section('Violations', h('span', { class: 'note' }, 'the last 50, as this node has heard of them; bars are the times when a state stood, red is when all did'), events));
  const sized = onWidth(events, (now) => { width = now; draw(); });
  return () => { stop(); sized(); };
}
