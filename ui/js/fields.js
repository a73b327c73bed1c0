// Fields that stand for a place of a file. What is empty is taken out of the file; what is no number stays as it was typed, and the server says what is wrong with it.

import { h } from './dom.js';

/** What stands at `path` of `tree`. */
export const look = (tree, path) => path.reduce((inner, step) => inner?.[step], tree);

/** Puts `value` at `path` of `tree`; `undefined` takes away what is there, and tables that are empty then. */
export function change(tree, path, value) {
  const [step, ...rest] = path;
  if (rest.length === 0) {
    if (value !== undefined) tree[step] = value;
    else if (Array.isArray(tree)) tree.splice(step, 1);
    else delete tree[step];
    return;
  }
  if (typeof tree[step] !== 'object' || tree[step] === null) {
    if (value === undefined) return;
    tree[step] = typeof rest[0] === 'number' ? [] : {};
  }
  change(tree[step], rest, value);
  if (value === undefined && !Array.isArray(tree) && !Array.isArray(tree[step]) && Object.keys(tree[step]).length === 0) delete tree[step];
}

/** A path as errors name it: `data_center[1].name`. */
export const keyOf = (path) => path.reduce((text, step) => (typeof step === 'number' ? `${text}[${step}]` : text ? `${text}.${step}` : step), '');

const number = (text) => {
  const value = Number(text);
  return text.trim() !== '' && Number.isFinite(value) ? value : text;
};

/** A word of an option: a number, `true`, `false`, or a text. */
const word = (text) => (text === 'true' ? true : text === 'false' ? false : number(text));

const KINDS = {
  text: { read: (text) => (text === '' ? undefined : text), show: (value) => value ?? '' },
  /** A text that stays when it is empty. */
  words: { read: (text) => text, show: (value) => value ?? '' },
  number: { read: (text) => (text.trim() === '' ? undefined : number(text)), show: (value) => value ?? '' },
  option: { read: (text) => (text === '' ? undefined : word(text)), show: (value) => (typeof value === 'object' ? JSON.stringify(value) : value ?? '') },
  /** Several, separated by commas. */
  list: { read: (text) => (text.trim() === '' ? undefined : text.split(',').map((part) => part.trim()).filter(Boolean)), show: (value) => (Array.isArray(value) ? value.join(', ') : value ?? '') },
  values: { read: (text) => (text.trim() === '' ? [] : text.split(',').map((part) => number(part.trim()))), show: (value) => (Array.isArray(value) ? value.join(', ') : value ?? '') },
};

/** Fields of `file`; each change is told to `changed`. */
export class Fields {
  constructor(file, changed) {
    this.file = file;
    this.changed = changed;
  }

  set(path, value, again) {
    this.changed(() => change(this.file, path, value), again);
  }

  /** A line to type in. `kind` is one of those above; `again`: other fields depend on it. */
  line(path, label, kind = 'text', { hint, again, secret, size, choices } = {}) {
    const { read, show } = KINDS[kind];
    const id = choices && `choices-${keyOf(path)}`;
    const input = h('input', {
      type: secret ? 'password' : 'text', inputmode: kind === 'number' ? 'decimal' : null, autocomplete: secret ? 'new-password' : 'off', spellcheck: 'false', value: show(look(this.file, path)), placeholder: hint, 'data-key': keyOf(path),
      'data-focus': keyOf(path), list: id, oninput: again ? null : (event) => this.set(path, read(event.target.value)), onchange: again ? (event) => this.set(path, read(event.target.value), true) : null,
    });
    return h('label', { class: size ?? (kind === 'number' ? 'small' : 'grow') }, label, input, choices && h('datalist', { id }, choices.map((value) => h('option', { value }))));
  }

  /** One of `choices`, texts or `[value, text]`; `none`: what it says where there is nothing. */
  choice(path, label, choices, { none, again = false } = {}) {
    const now = look(this.file, path);
    const options = [...(none === undefined ? [] : [['', none]]), ...choices.map((one) => (Array.isArray(one) ? one : [one, one]))];
    if (now !== undefined && !options.some(([value]) => value === now)) options.push([now, String(now)]);
    const pick = (event) => this.set(path, options[event.target.selectedIndex][0] === '' ? undefined : options[event.target.selectedIndex][0], again);
    return h('label', {}, label, h('select', { 'data-key': keyOf(path), 'data-focus': keyOf(path), onchange: pick }, options.map(([value, text]) => h('option', { selected: value === (now ?? '') }, text))));
  }

  /** Yes or no. `usual`: what it is where the file says nothing. */
  yes(path, label, usual = false) {
    const now = look(this.file, path) ?? usual;
    return h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: now === true, 'data-key': keyOf(path), 'data-focus': keyOf(path), onchange: (event) => this.set(path, event.target.checked === usual ? undefined : event.target.checked) }), label);
  }

  /** Some of `choices`, each `[value, text]`; none chosen: the key is absent. */
  some(path, label, choices, kept = false) {
    const now = look(this.file, path);
    const pick = (value, on) => {
      const others = (Array.isArray(look(this.file, path)) ? look(this.file, path) : []).filter((one) => one !== value);
      const next = choices.map(([one]) => one).filter((one) => others.includes(one) || (on && one === value));
      this.set(path, next.length || kept ? next : undefined);
    };
    return h('fieldset', { 'data-key': keyOf(path) }, h('legend', {}, label), choices.map(([value, text]) => h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: Array.isArray(now) && now.includes(value), 'data-focus': `${keyOf(path)} ${value}`, onchange: (event) => pick(value, event.target.checked) }), text)));
  }

  /** A button that takes away what is at `path`. */
  remove(path, what) {
    return h('button', { type: 'button', class: 'small danger', 'aria-label': `Remove ${what}`, onclick: () => this.set(path, undefined, true) }, 'Remove');
  }

  /** A button that adds `value` to the list at `path`. */
  add(path, text, value) {
    return h('button', { type: 'button', class: 'small', 'data-focus': `add ${keyOf(path)}`, onclick: () => this.changed(() => {
      const there = look(this.file, path);
      if (Array.isArray(there)) there.push(value());
      else change(this.file, path, [value()]);
    }, true) }, text);
  }

  /** The options of a protocol at `path`: a line for each that is set, and one to add another. */
  options(path, known) {
    const set = Object.keys(look(this.file, path) ?? {});
    const left = known.filter((name) => !set.includes(name));
    const more = left.length > 0 && h('label', {}, 'Option', h('select', { 'data-focus': `${keyOf(path)} more`, onchange: (event) => { if (event.target.value) this.set([...path, event.target.value], '', true); } }, h('option', { value: '' }, 'add one …'), left.map((name) => h('option', { value: name }, name))));
    return [set.map((name) => h('span', { class: 'pair' }, this.line([...path, name], name, 'option', { size: 'small' }), h('button', { type: 'button', class: 'small', 'aria-label': `Remove option ${name}`, onclick: () => this.set([...path, name], undefined, true) }, '×'))), more];
  }
}
