// The page of conflicts: writes that were lost to others which did not know of them, and values that stand side by side.

import { post } from './api.js';
import { chip, h, put, section, table } from './dom.js';
import { count, keyOf, shown, span, time } from './format.js';
import { keyspaceChoice } from './key.js';

/** Protocols whose versions tell what their writers had not seen. */
const TELLS = ['causal', 'cops', 'hybrid'];

const written = (version) => (version?.written_ms ? `${time(version.written_ms)} in ${version.origin}` : '?');
const value = (version) => (version?.value ? h('code', {}, shown(version.value) || '(empty)') : h('span', { class: 'absent' }, 'deleted'));

function counted(status) {
  const rows = status.keyspaces.map((keyspace) => [h('strong', {}, keyspace.name), keyspace.protocol, [TELLS.includes(keyspace.protocol) ? count(keyspace.conflicts) : '–', 'number'],
    keyspace.siblings ? 'none is lost: values stand side by side until a write takes their place' : !TELLS.includes(keyspace.protocol) ? 'its versions do not tell what their writers had not seen' : keyspace.history_ms ? `those of the last ${span(keyspace.history_ms)} can be looked at` : 'counted only: without history_ms nothing is kept of them']);
  return table('Conflicts by keyspace', ['keyspace', 'protocol', ['writes lost', 'number'], 'of a key'], rows);
}

/** What one data center says of the key. */
function told(place, siblings) {
  const said = () => {
    if (place.error) return h('p', { class: 'error' }, place.error);
    if (siblings) {
      if (!place.siblings.length) return h('p', { class: 'note' }, 'It has no value.');
      const state = place.siblings.length > 1 ? chip('mild', `${place.all} values stand side by side`) : chip('good', 'one value');
      return [h('p', {}, state), table(`Values in ${place.name}`, ['value', 'written'], place.siblings.map((one) => [[value(one), 'keycell'], written(one)]))];
    }
    if (!place.conflicts.length) return h('p', {}, chip('good', 'none'), ' No write was lost within what is kept.');
    return [h('p', {}, chip('mild', `${place.all} ${place.all === 1 ? 'write was' : 'writes were'} lost`)),
      table(`Conflicts in ${place.name}`, ['lost', 'written', 'to', 'written'], place.conflicts.map((one) => [[value(one.loser), 'keycell'], written(one.loser), [value(one.winner), 'keycell'], written(one.winner)]))];
  };
  return h('div', {}, h('h3', {}, place.name), said());
}

export function conflictsPage(root, shared) {
  const [choice, unwatch] = keyspaceChoice(shared);
  const field = h('input', { name: 'key', autocomplete: 'off', spellcheck: 'false', placeholder: 'comment', maxlength: 4096, value: shared.conflict ?? '' });
  const [counts, said, answers] = [h('div'), h('p', { class: 'error', role: 'alert' }), h('div')];
  let last = 0;
  const look = async (event) => {
    event?.preventDefault();
    shared.conflict = field.value;
    last += 1;
    const asked = last;
    try {
      const answer = await post('conflicts', { keyspace: choice.value, key: keyOf(field.value) });
      if (asked !== last) return;
      put(said);
      put(answers, h('p', {}, h('code', {}, shown(answer.key) || '(the empty key)'), ` of keyspace ${answer.keyspace}`), h('div', { class: 'cards' }, answer.data_centers.map((place) => told(place, answer.siblings))));
    } catch (error) {
      if (asked === last) put(said, error.message);
    }
  };
  put(answers, h('p', { class: 'note' }, 'A write is lost to another one, of another data center, that takes its place and whose writer had certainly not seen it: that is so by the dependencies of the newer one, nothing is guessed. In keyspaces of protocol quorum both stand side by side instead.'));
  put(root, section('Conflicts', h('span', { class: 'note' }, 'as the data center counts that has seen most; each counts all of them'), counts),
    section('Of a key', null, h('form', { class: 'form', onsubmit: look }, h('label', {}, 'Keyspace', choice), h('label', { class: 'grow' }, 'Key', field), h('button', { type: 'submit' }, 'Look')), said), section('In each data center', null, answers));
  let shape = '';
  const watch = shared.watch((status) => {
    const now = JSON.stringify(status.keyspaces.map((keyspace) => [keyspace.name, keyspace.conflicts]));
    if (now !== shape) put(counts, counted(status));
    shape = now;
  });
  return () => { unwatch(); watch(); };
}
