// The page Designer without a cluster: `rheostat designer`.

import { get } from './api.js';
import { designerPage } from './designer.js';
import { h, put } from './dom.js';
import { themeChoice } from './theme.js';

async function begin() {
  try {
    const session = await get('session');
    const main = h('main', { id: 'main', tabindex: -1 });
    put(document.body,
      h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'To the content'),
      h('header', { class: 'top line' }, h('h1', {}, h('img', { src: '/icon.svg', alt: '', width: 22, height: 22 }), 'Cluster Designer'), h('div', { class: 'tools' }, themeChoice())),
      main, h('footer', {}, `Rheostat ${session.release}. Nothing is kept here: save what you draw.`));
    designerPage(main, { session });
  } catch (error) {
    put(document.body, h('main', { class: 'signin' }, h('h1', {}, 'Rheostat'), h('p', { role: 'alert' }, `${error.message}.`), h('button', { type: 'button', onclick: begin }, 'Try again')));
  }
}

begin();
