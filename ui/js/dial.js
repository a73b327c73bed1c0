// The page of the dial: the same read at each level, side by side.

import { post, repeat } from './api.js';
import { h, put, section, table } from './dom.js';
import { keyOf, shown, span } from './format.js';
import { keyspaceChoice } from './key.js';

const ABOUT = {
  eventual: 'whatever has arrived', session: 'what this session has seen, and no less', causal: 'no effect before its cause',
  local: 'linearizable within one data center', strong: 'linearizable everywhere',
};

function cell(read, longest) {
  if (!read) return h('span', { class: 'absent' }, '–');
  const bar = h('span', { class: 'bar' });
  bar.style.width = `${Math.max(1, (100 * read.took_us) / longest)}%`;
  const value = read.error ? h('span', { class: 'value error', title: read.error }, read.error) : h('code', { class: 'value', title: read.read.version ?? '' }, read.read.value ? shown(read.read.value) : '(nil)');
  const stale = read.error ? '' : read.staleness_ms === null ? 'no bound is known' : read.staleness_ms === 0 ? 'nothing newer' : `at most ${span(read.staleness_ms)} stale`;
  return h('div', { class: 'cell' }, h('strong', {}, span(read.took_us / 1000)), h('span', { class: 'barback' }, bar), value, h('span', { class: 'note' }, read.achieved ? `${read.achieved}: ${stale}` : stale));
}

export function dialPage(root, shared) {
  const [choice, unwatch] = keyspaceChoice(shared);
  const field = h('input', { name: 'key', autocomplete: 'off', spellcheck: 'false', placeholder: 'photo', maxlength: 4096, value: shared.keys?.[0] ?? '' });
  const live = h('input', { type: 'checkbox', name: 'live' });
  const [said, told] = [h('p', { class: 'error', role: 'alert' }), h('div')];
  let stop = null;
  let last = 0;
  const ask = async () => {
    last += 1;
    const [asked, keyspace] = [last, choice.value];
    const isPassed = () => asked !== last || keyspace !== choice.value;
    try {
      const answer = await post('dial', { keyspace, key: keyOf(field.value) });
      if (isPassed()) return;
      put(said);
      const reads = answer.data_centers.flatMap((place) => place.reads ?? []);
      const longest = Math.max(1, ...reads.map((read) => read.took_us));
      const levels = [...new Set(reads.map((read) => read.level))];
      const rows = levels.map((level) => [[h('div', {}, h('strong', {}, level), h('div', { class: 'note' }, ABOUT[level])), 'level'],
        ...answer.data_centers.map((place) => (place.error || place.refused ? h('span', { class: 'error' }, place.error ?? place.refused) : cell(place.reads.find((read) => read.level === level), longest)))]);
      const ways = answer.data_centers.map((place) => (place.way_us === undefined ? null : `${place.name} ${span(place.way_us / 1000)}`)).filter(Boolean);
      put(told, table('Reads by level and data center', ['level', ...answer.data_centers.map((place) => place.name)], rows),
        answer.refused.length ? h('p', { class: 'note' }, `Not served: ${answer.refused.map(({ level }) => level).join(', ')}; ${answer.refused[0].why}.`) : '',
        h('p', { class: 'note' }, `Each read is by a new session at a node of that data center, one after the other, with ${span(answer.deadline_ms)} at most. Times are those of this node's call, the way to that node included; an empty call took: ${ways.join(', ')}.`));
    } catch (error) {
      if (!isPassed()) put(said, error.message);
    }
  };
  const begin = () => {
    stop?.();
    stop = live.checked ? repeat(2000, ask) : null;
    if (!stop) ask();
  };
  live.addEventListener('change', () => { stop?.(); stop = live.checked && field.value ? repeat(2000, ask) : null; });
  put(root, section('One read at each level', null,
    h('form', { class: 'form', onsubmit: (event) => { event.preventDefault(); begin(); } }, h('label', {}, 'Keyspace', choice), h('label', { class: 'grow' }, 'Key', field), h('button', { type: 'submit' }, 'Read'), h('label', { class: 'check' }, live, 'repeat')), said),
  section('What each level returns and costs', null, told));
  put(told, h('p', { class: 'note' }, 'Type a key. Its value is read at each level that the keyspace serves, in every data center; nothing is written. With a link cut, the levels part.'));
  return () => { stop?.(); unwatch(); };
}
