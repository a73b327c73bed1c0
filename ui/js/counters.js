// The page of counters: the value, the bounds, and the rights of each data center, as every data center sees them.

import { post, repeat } from './api.js';
import { chip, h, onWidth, put, s, section, table } from './dom.js';
import { keyOf } from './format.js';
import { keyspaceChoice } from './key.js';

/** Thin spaces between thousands; the number is text, since it may have 64 bits. */
const grouped = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ' ');

function bars(place, way, names, width) {
  const rows = place.rights.filter((rights) => rights[way] !== null).sort((one, other) => names.indexOf(one.data_center) - names.indexOf(other.data_center));
  const most = Math.max(1, ...rows.map((rights) => Number(rights[way])));
  const [label, number, high] = [Math.min(110, width * 0.28), 84, 22];
  const room = Math.max(20, width - label - number);
  return s('svg', { viewBox: `0 0 ${width} ${rows.length * high}`, width, height: rows.length * high, role: 'img', 'aria-label': rows.map((rights) => `${rights.data_center} ${rights[way]}`).join(', ') },
    rows.map((rights, index) => [
      s('text', { x: 0, y: index * high + 15 }, rights.data_center), s('rect', { x: label, y: index * high + 5, width: room, height: 12, rx: 2, class: 'back' }),
      s('rect', { x: label, y: index * high + 5, width: (room * Number(rights[way])) / most, height: 12, rx: 2, class: 'here' }),
      s('text', { x: width, y: index * high + 15, 'text-anchor': 'end' }, grouped(rights[way]) + (rights.standing === 'member' ? '' : ` ${rights.standing}`)),
    ]));
}

export function countersPage(root, shared) {
  const [choice, unwatch] = keyspaceChoice(shared);
  const field = h('input', { name: 'key', autocomplete: 'off', spellcheck: 'false', placeholder: 'stock', maxlength: 4096, value: shared.counter ?? '' });
  const [said, told] = [h('p', { class: 'error', role: 'alert' }), h('div', { class: 'rights' })];
  let [stop, answer, width, begun] = [null, null, 0, 0];
  const draw = () => {
    if (!answer || !width) return;
    // As wide as the columns of the style sheet become.
    const column = Math.floor((width + 14) / Math.max(1, Math.floor((width + 14) / 344))) - 14;
    const rows = answer.data_centers.map((place) => [h('strong', {}, place.name), place.error ? h('span', { class: 'error' }, place.error) : [grouped(place.value), 'number'], [place.error ? '' : place.lower ?? 'none', 'number'], [place.error ? '' : place.upper ?? 'none', 'number']]);
    // The one that knows most: where nothing has failed.
    const place = answer.data_centers.find((one) => !one.error);
    const reclaimed = place?.rights.filter((rights) => rights.standing !== 'member') ?? [];
    put(told, table('The counter in each data center', ['seen in', ['value', 'number'], ['at least', 'number'], ['at most', 'number']], rows),
      h('div', { class: 'three' }, answer.data_centers.filter((one) => !one.error && one.rights.length).map((one) => h('div', {}, ['down', 'up'].filter((way) => one.rights.some((rights) => rights[way] !== null)).map((way) => [h('h3', {}, `Rights to ${way === 'down' ? 'decrement' : 'increment'}, as ${one.name} knows them`), bars(one, way, answer.data_centers.map((other) => other.name), column)])))),
      reclaimed.map((rights) => h('p', {}, chip('mild', rights.standing), ` ${rights.data_center}${rights.heir ? `, to ${rights.heir}` : ''}`)));
  };
  const ask = async () => {
    const asked = begun;
    try {
      const now = await post('counter', { keyspace: choice.value, key: keyOf(field.value) });
      if (asked !== begun) return;
      answer = now;
      put(said);
      draw();
    } catch (error) {
      if (asked === begun) put(said, error.message);
    }
  };
  const begin = (event) => {
    event?.preventDefault();
    shared.counter = field.value;
    begun += 1;
    stop?.();
    stop = field.value ? repeat(1000, ask) : null;
  };
  choice.addEventListener('change', () => begin());
  put(root, section('Counter', null, h('form', { class: 'form', onsubmit: begin }, h('label', {}, 'Keyspace', choice), h('label', { class: 'grow' }, 'Key', field), h('button', { type: 'submit' }, 'Look')), said),
    section('Rights', h('span', { class: 'note' }, 'live, once a second'), told));
  put(told, h('p', { class: 'note' }, 'Each data center holds rights to change a counter that has bounds, and uses its own without asking. They flow to where they are needed.'));
  const sized = onWidth(told, (now) => { width = now; draw(); });
  return () => { stop?.(); unwatch(); sized(); };
}
