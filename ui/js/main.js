// The shell: who is asked, which page is shown, in which colours. Pages are functions that fill an element and say how they end.

import { get, post, repeat } from './api.js';
import { chip, h, put } from './dom.js';
import { time } from './format.js';
import { themeChoice } from './theme.js';
import { mapPage } from './map.js';
import { keyPage } from './key.js';
import { dialPage } from './dial.js';
import { Courses, timePage } from './time.js';
import { countersPage } from './counters.js';
import { monitorsPage } from './monitors.js';
import { loadPage } from './load.js';
import { conflictsPage } from './conflicts.js';
import { faultsPage } from './faults.js';
import { designerPage } from './designer.js';

const PAGES = { map: ['Map', mapPage], key: ['Key', keyPage], dial: ['Dial', dialPage], time: ['Time', timePage], counters: ['Counters', countersPage], monitors: ['Monitors', monitorsPage], load: ['Load', loadPage], conflicts: ['Conflicts', conflictsPage], faults: ['Faults', faultsPage], designer: ['Designer', designerPage] };

/** What all pages share: the session, the last status and who wants the next, the courses of numbers. */
const shared = {
  session: null,
  status: null,
  courses: new Courses(),
  watchers: new Set(),
  /** Calls `watcher` with each status from now on; says how to stop. */
  watch(watcher) {
    this.watchers.add(watcher);
    if (this.status) watcher(this.status);
    return () => this.watchers.delete(watcher);
  },
};

let ends = [];

function end() {
  ends.forEach((stop) => stop?.());
  ends = [];
}

function signIn(why) {
  end();
  const field = h('input', { type: 'password', id: 'password', autocomplete: 'current-password', required: true });
  const user = shared.session?.users && h('input', { type: 'text', id: 'user', autocomplete: 'username', placeholder: 'default' });
  const wrong = h('p', { class: 'error', role: 'alert' }, why ?? '');
  const submit = async (event) => {
    event.preventDefault();
    try {
      shared.session = await post('login', { user: user?.value ?? '', password: field.value });
      field.value = '';
      open();
    } catch (error) {
      field.value = '';
      field.focus();
      put(wrong, error.message);
    }
  };
  put(document.body, h('main', { class: 'signin' }, h('h1', {}, 'Rheostat'), h('form', { class: 'panel', onsubmit: submit },
    user && [h('label', { for: 'user' }, 'User'), user],
    h('label', { for: 'password' }, user ? 'Password' : "The cluster's password"), field, h('button', { type: 'submit' }, 'Sign in'), wrong,
    h('p', { class: 'note' }, 'It is the password that clients give. This page keeps it nowhere; a cookie lasts half a day.')), themeChoice()));
  field.focus();
}

function open() {
  const { session } = shared;
  const main = h('main', { id: 'main', tabindex: -1 });
  const health = h('p', { class: 'health', role: 'status' });
  const pages = Object.fromEntries(Object.entries(PAGES).filter(([name]) => (name !== 'designer' || session.designer) && (name !== 'faults' || session.faults)));
  const links = Object.entries(pages).map(([name, [title]]) => h('a', { href: `#${name}`, 'data-focus': name }, title));
  const signOut = session.password && h('button', { class: 'quiet', type: 'button', onclick: async () => { await post('logout', {}).catch(() => {}); begin(); } }, 'Sign out');
  put(document.body,
    h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'To the content'),
    h('header', { class: 'top' }, h('h1', {}, h('img', { src: '/icon.svg', alt: '', width: 22, height: 22 }), session.cluster), health, h('div', { class: 'tools' }, themeChoice(), signOut)),
    h('nav', { 'aria-label': 'Pages' }, links),
    main,
    h('footer', {}, `Asked through node ${session.node} in ${session.data_center}, release ${session.release}. `,
      'What other nodes say, this node has asked them for. Times are UTC.'));

  let endPage = null;
  const show = () => {
    const name = location.hash.slice(1) in pages ? location.hash.slice(1) : 'map';
    const [title, page] = pages[name];
    endPage?.();
    links.forEach((link) => (link.hash.slice(1) === name ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current')));
    document.title = `${title} · ${session.cluster} · Rheostat`;
    put(main);
    endPage = page(main, shared) ?? null;
  };
  addEventListener('hashchange', show);
  show();

  const lost = (error) => {
    if (error.status === 401) signIn('The session has ended.');
    else put(health, chip('grave', error.message));
  };
  const ask = repeat(1000, async () => {
    try {
      const status = await get('status');
      shared.status = status;
      shared.courses.addStatus(status);
      const grave = status.wrong.filter((one) => one.grave).length;
      // As `rheostat ctl status` says it: what is mild keeps nobody from being served.
      const several = (count, one, more) => `${count} thing${count > 1 ? more : one}`;
      const mild = status.wrong.length - grave;
      const [kind, words] = grave ? ['grave', several(grave, ' is wrong', 's are wrong')] : mild ? ['mild', several(mild, ' to look at', 's to look at')] : ['good', 'all is well'];
      if (health.dataset.words !== words) {
        health.dataset.words = words;
        put(health, chip(kind, words));
      }
      health.title = `as of ${time(status.at_ms)}`;
      shared.watchers.forEach((watcher) => watcher(status));
    } catch (error) {
      delete health.dataset.words;
      lost(error);
    }
  });
  const count = repeat(2000, async () => {
    try {
      shared.courses.addTime(await get('time'));
    } catch (error) {
      if (error.status === 401) lost(error);
    }
  });
  ends = [() => endPage?.(), ask, count, () => removeEventListener('hashchange', show)];
}

async function begin() {
  end();
  shared.status = null;
  shared.watchers.clear();
  try {
    shared.session = await get('session');
    if (shared.session.signed_in) open();
    else signIn();
  } catch (error) {
    put(document.body, h('main', { class: 'signin' }, h('h1', {}, 'Rheostat'), h('p', { role: 'alert' }, `${error.message}.`), h('button', { type: 'button', onclick: begin }, 'Try again')));
  }
}

begin();
