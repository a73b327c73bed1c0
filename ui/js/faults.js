// The page of faults, where they are allowed: made by a click, bounded, ended by themselves or by another click.

import { get, post, repeat } from './api.js';
import { chip, h, put, section, table } from './dom.js';
import { span } from './format.js';

/** A fault in words. */
export function words(fault) {
  if (fault.kind === 'slow_link') return `What passes between ${fault.between[0]} and ${fault.between[1]} takes ${span(fault.one_way_ms)} longer each way`;
  if (fault.kind === 'pause') return `Node ${fault.node} stands still`;
  if (fault.kind === 'clock') return `The clock of node ${fault.node} is ${span(Math.abs(fault.ahead_ms))} ${fault.ahead_ms > 0 ? 'ahead' : 'behind'}`;
  return `Something at node ${fault.node} that this page does not know`;
}

/** What nodes tell of one fault of a link is one fault. */
export function together(faults) {
  const found = new Map();
  for (const fault of faults) {
    const between = fault.between && [...fault.between].sort();
    const name = between ? `${between.join('\n')}\n${fault.one_way_ms}` : `${fault.node}\n${fault.number}`;
    const one = found.get(name) ?? { ...fault, between, parts: [] };
    one.parts.push([fault.node, fault.number]);
    one.left_ms = Math.max(one.left_ms, fault.left_ms);
    found.set(name, one);
  }
  return [...found.values()];
}

export function faultsPage(root, shared) {
  const said = h('p', { class: 'error', role: 'alert' });
  const lasting = h('div');
  const [one, other, paused, skewed] = ['one', 'other', 'paused', 'skewed'].map((name) => h('select', { name }));
  const number = (name, value, least, most) => h('input', { name, type: 'number', value, min: least, max: most, required: true });
  const [by, slowFor, pauseFor, ahead, clockFor] = [number('by', 200, 1, 10_000), number('slow-for', 30, 1, 600), number('pause-for', 5, 1, 60), number('ahead', 2000, -600_000, 600_000), number('clock-for', 30, 1, 600)];
  const draw = (answer) => {
    const faults = together(answer.faults);
    const rows = faults.map((fault) => [[h('strong', {}, words(fault)), 'wide'], [span(fault.left_ms), 'number'],
      h('button', { type: 'button', class: 'small', 'data-focus': `${fault.kind} ${fault.parts[0].join(' ')}`, 'aria-label': `Undo: ${words(fault)}`, onclick: () => change({ end: fault.parts }) }, 'Undo')]);
    const away = answer.nodes.filter((node) => node.error).map((node) => `${node.node}: ${node.error}`);
    const closed = answer.nodes.filter((node) => node.allowed === false).map((node) => node.node);
    put(lasting, rows.length ? table('Faults that last', ['what', ['ends by itself in', 'number'], h('span', { class: 'hidden' }, 'undo')], rows) : h('p', {}, chip('good', 'None'), ' All that goes wrong now goes wrong by itself.'),
      away.length ? h('p', { class: 'note' }, `Not asked: ${away.join('; ')}.`) : null, closed.length ? h('p', { class: 'note' }, `Their configuration allows no faults: ${closed.join(', ')}.`) : null);
  };
  const change = async (wanted) => {
    put(said);
    try {
      const answer = await post('fault', wanted);
      if (answer.refused?.length) put(said, answer.refused.join('; '));
      draw(answer);
    } catch (error) {
      put(said, error.message);
    }
  };
  const seconds = (field) => Math.round(Number(field.value) * 1000);
  const form = (label, wanted, ...fields) => h('form', { class: 'form', onsubmit: (event) => { event.preventDefault(); change(wanted()); } }, fields, h('button', { type: 'submit', class: 'quiet danger' }, label));
  let names = '';
  const watch = shared.watch((status) => {
    const now = JSON.stringify([status.data_centers.map((place) => place.name), status.nodes.map((node) => node.name)]);
    if (now === names) return;
    names = now;
    const fill = (select, all, chosen) => put(select, all.map((name, index) => h('option', { value: name, selected: index === chosen }, name)));
    const places = status.data_centers.map((place) => place.name);
    fill(one, places, 0);
    fill(other, places, Math.min(1, places.length - 1));
    [paused, skewed].forEach((select) => fill(select, status.nodes.map((node) => node.name), status.nodes.length - 1));
  });
  put(root, section('Faults', h('span', { class: 'note' }, 'this configuration allows them (console.faults)'), lasting, said),
    h('div', { class: 'cards' },
      section('Slow a link', null, form('Slow it down', () => ({ slow_link: { between: [one.value, other.value], one_way_ms: Number(by.value), for_ms: seconds(slowFor) } }),
        h('label', {}, 'Between', one), h('label', {}, 'and', other), h('label', { class: 'small' }, 'by, ms each way', by), h('label', { class: 'small' }, 'for, s', slowFor)),
      h('p', { class: 'note' }, 'Whatever nodes at either end send to the other leaves later, in order. Nothing is lost.')),
      section('Pause a node', null, form('Pause it', () => ({ pause: { node: paused.value, for_ms: seconds(pauseFor) } }), h('label', {}, 'Node', paused), h('label', { class: 'small' }, 'for, s', pauseFor)),
        h('p', { class: 'note' }, 'The threads that serve its partitions and connections stand still; connections stay open, and what comes waits. Others may lead in its place meanwhile.')),
      section('Skew a clock', null, form('Skew it', () => ({ clock: { node: skewed.value, ahead_ms: Number(ahead.value), for_ms: seconds(clockFor) } }), h('label', {}, 'Node', skewed), h('label', { class: 'small' }, 'ahead by, ms', ahead), h('label', { class: 'small' }, 'for, s', clockFor)),
        h('p', { class: 'note' }, 'Less than 0 is behind. A node that is outvoted by the clocks of others does not believe its own. One that is not stamps its writes by it, and those stay.')),
      section('Cut a link', null, h('p', { class: 'note' }, 'On the page ', h('a', { href: '#map' }, 'Map'), ', beside each link. A cut has no end by itself.'))));
  const stop = repeat(1000, async () => {
    try {
      draw(await get('faults'));
    } catch (error) {
      put(said, error.message);
    }
  });
  return () => { stop(); watch(); };
}
