// A run as a space-time diagram: a lane for each server and client, time to the right, a line for each message.

import { scaleOf } from '../js/diagram.js';
import { s } from '../js/dom.js';

/** More messages than this are not drawn. */
export const MOST_DRAWN = 2500;

const SERVER = 34;
const CLIENT = 62;
const HEAD = 22;
const NAMES = 104;

/** The lanes in the order in which they are drawn: by data center, clients first. */
export function order(report) {
  const lanes = report.lanes.map((lane, index) => ({ ...lane, index }));
  return lanes.sort((a, b) => a.dc - b.dc || Number(b.client) - Number(a.client) || a.index - b.index);
}

/** Where each lane is, and how high all are. */
function layout(report) {
  const y = [];
  let down = HEAD;
  let last = null;
  const groups = [];
  for (const lane of order(report)) {
    if (last !== lane.dc) {
      down += last === null ? 0 : 14;
      groups.push([lane.dc, down]);
      down += 18;
    }
    last = lane.dc;
    const high = lane.client ? CLIENT : SERVER;
    y[lane.index] = down + (lane.client ? 44 : SERVER / 2);
    down += high;
  }
  return { y, groups, height: down + 26 };
}

/** What is drawn of a run: `all` also shows what only keeps servers informed. */
export function visible(report, all) {
  const shown = (message) => message.asked || message.touch !== null || all;
  const picked = [];
  const first = Math.min(...report.operations.map((operation) => operation.begun), ...report.messages.filter((message) => message.asked).map((message) => message.sent), report.end);
  const last = Math.max(report.healed ?? 0, ...report.operations.map((operation) => operation.ended ?? operation.begun));
  report.messages.forEach((message, index) => {
    const near = message.asked || (message.sent >= first - 60 && message.sent <= last + 60);
    if (picked.length < MOST_DRAWN && shown(message) && near) picked.push(index + 1);
  });
  return picked;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** How a message is called where it is heard, not seen. */
export function named(report, number) {
  const message = report.messages[number - 1];
  const came = message.arrived.length ? `arrives at ${message.arrived[0]} ms` : message.lost ?? 'has not arrived';
  return `Message ${number}, ${message.kind}, from ${report.lanes[message.from].name} to ${report.lanes[message.to].name}, sent at ${message.sent} ms, ${came}`;
}

/**
 * The names of the lanes, and the diagram. `now`: the time of the step that is looked at; `pick(number)`: a message was chosen; `chosen`: which; `marked`: events of the history that
 * show a broken promise.
 */
export function spacetime(report, { all, width, zoom, now, chosen, marked, pick }) {
  const { y, groups, height } = layout(report);
  const numbers = visible(report, all);
  const times = new Set(report.operations.flatMap((operation) => [operation.begun, operation.ended ?? operation.begun]));
  let longest = 10;
  for (const number of numbers) {
    const message = report.messages[number - 1];
    times.add(message.sent);
    if (message.arrived.length === 0) times.add(message.sent + 8);
    for (const at of message.arrived) {
      times.add(at);
      if (at - message.sent < 5000) longest = Math.max(longest, at - message.sent);
    }
  }
  for (const fault of report.faults) if (times.size < 4000) [fault.from, fault.until].filter((at) => at <= report.end).forEach((at) => times.add(at));
  if (report.healed !== null) times.add(report.healed);
  times.add(now);
  const count = times.size;
  const wide = Math.max(width, Math.min(24_000, Math.round(Math.max(width, count * 13) * zoom)));
  const { x, breaks } = scaleOf([...times], Math.min(longest * 1.2, 120), 16, wide - 60, Math.min(longest, 60) * 0.09);
  const out = { back: [], ways: [], bars: [], dots: [], words: [] };

  for (const lane of report.lanes.keys()) out.back.push(s('line', { x1: 0, x2: wide, y1: y[lane], y2: y[lane], class: report.lanes[lane].client ? 'lane client' : 'lane' }));
  for (const [before, after] of breaks) {
    const middle = (x(before) + x(after)) / 2;
    out.back.push(s('g', {}, s('path', { d: `M${middle - 5} ${height - 17} l4 -10 M${middle + 1} ${height - 17} l4 -10`, class: 'breakmark' }), s('title', {}, `${Math.round(after - before)} ms in which nothing of this happened`)));
  }
  for (const fault of report.faults.filter((one) => times.has(one.from))) {
    const until = times.has(fault.until) ? x(fault.until) : wide;
    out.back.push(s('g', {}, s('rect', { x: x(fault.from), width: Math.max(2, until - x(fault.from)), y: 0, height: 5, class: 'fault' }), s('title', {}, `${fault.text}, ${fault.from} to ${fault.until} ms`)));
  }
  if (report.healed !== null) out.back.push(s('line', { x1: x(report.healed), x2: x(report.healed), y1: 8, y2: height - 16, class: 'healed' }), s('text', { x: x(report.healed) - 5, y: 17, 'text-anchor': 'end', class: 'tick' }, 'everything heals'));

  for (const number of numbers) {
    const message = report.messages[number - 1];
    const later = message.sent > now ? ' later' : '';
    const kind = `${message.asked ? '' : ' quiet'}${message.updates ? ' updates' : ''}${report.lanes[message.from].client || report.lanes[message.to].client ? ' near' : ''}${message.touch !== null ? ' touched' : ''}${number === chosen ? ' chosen' : ''}`;
    const [x1, y1] = [x(message.sent), y[message.from]];
    const parts = message.arrived.map((at) => {
      const way = { x1, y1, x2: x(at), y2: y[message.to] };
      const slope = Math.atan2(way.y2 - y1, way.x2 - x1);
      const head = (turn) => `${way.x2 - 7 * Math.cos(slope + turn)} ${way.y2 - 7 * Math.sin(slope + turn)}`;
      return [s('line', { ...way, class: `message${kind}` }), s('path', { d: `M${head(0.4)} L${way.x2} ${way.y2} L${head(-0.4)}`, class: `message head${kind}` }), s('line', { ...way, class: 'grip' })];
    });
    if (parts.length === 0) {
      const [x2, y2] = [x(message.sent + 8), y1 + (y[message.to] - y1) * 0.45];
      parts.push(s('line', { x1, y1, x2, y2, class: `message lost${kind}` }), s('path', { d: `M${x2 - 4} ${y2 - 4} l8 8 m0 -8 l-8 8`, class: 'cross' }), s('line', { x1, y1, x2, y2, class: 'grip' }));
    }
    const choose = () => pick(number);
    out.ways.push(s('g', {
      class: `way${later}`, role: 'button', tabindex: message.asked ? 0 : -1, 'aria-label': named(report, number), 'aria-pressed': String(number === chosen), 'data-focus': `message ${number}`, 'data-message': number,
      onclick: choose, onkeydown: (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(); } },
    }, parts, s('title', {}, `${number}: ${message.kind} ${cut(message.words, 160)}`)));
  }

  const taken = [];
  for (const operation of report.operations) {
    const [from, to] = [x(operation.begun), x(operation.ended ?? operation.begun)];
    const at = y[operation.lane];
    const grave = operation.event !== null && marked.has(operation.event);
    const later = operation.begun > now ? ' later' : '';
    const done = operation.ended !== null && operation.ended <= now;
    const says = cut(operation.result ? `${operation.text} → ${done ? plain(operation.result) : '…'}` : operation.text, 46);
    const long = says.length * 6.7;
    let up = at - 10;
    const from0 = Math.min(from, wide - long - 4);
    while (taken.some((box) => Math.abs(box.y - up) < 12 && box.lane === operation.lane && box.from < from0 + long && from0 < box.to) && up > at - 44) up -= 12.5;
    taken.push({ from: from0, to: from0 + long + 6, y: up, lane: operation.lane });
    out.bars.push(s('line', { x1: from, x2: Math.max(from + 2, to), y1: at, y2: at, class: `operation${grave ? ' grave' : ''}${later}${operation.ended === null ? ' open' : ''}` }, s('title', {}, `${operation.text}: ${operation.result || 'no answer'}`)));
    out.words.push(s('text', { x: from0, y: up, class: `said${grave ? ' grave' : ''}${later}` }, grave && `${operation.event} `, says));
  }
  out.dots.push(s('line', { x1: x(now), x2: x(now), y1: 8, y2: height - 16, class: 'nowline' }));
  const ticks = [];
  let until = -Infinity;
  for (const at of [...times].sort((a, b) => a - b)) {
    if (x(at) < until) continue;
    until = x(at) + 74;
    ticks.push(s('text', { x: x(at), y: height - 4, class: 'tick' }, `${Math.round(at * 10) / 10}`));
  }

  const names = s('svg', { class: 'diagram lanes', viewBox: `0 0 ${NAMES} ${height}`, width: NAMES, height, 'aria-hidden': 'true' },
    groups.map(([dc, down]) => s('text', { x: 2, y: down + 12, class: 'lanename' }, width < 500 ? `center ${dc}` : `data center ${dc}`)),
    report.lanes.map((lane, index) => s('text', { x: 2, y: y[index] + 4, class: 'state soft' }, lane.name)),
    s('text', { x: 2, y: height - 4, class: 'tick' }, 'ms'));
  const words = `${report.lanes.length} lanes, ${numbers.length} messages, ${report.operations.length} operations of clients. The tables below say the same.`;
  const drawing = s('svg', { class: 'diagram spacetime', viewBox: `0 0 ${wide} ${height}`, width: wide, height, role: 'group', 'aria-label': `Space-time diagram. ${words}` },
    out.back, out.dots, out.ways, out.bars, out.words, ticks);
  return { names, drawing, at: x(now), drawn: numbers.length };
}

/** A result without its version, which stands in the table. */
export const plain = (result) => result.replace(/ \(version [^)]*\)/g, '').replace(/^version .*/, 'ok');
