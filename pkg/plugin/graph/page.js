
'use strict';
const row = 26, box = 20, first = 12; // as in the picture
const byId = id => document.getElementById(id);
const svg = document.querySelector('svg'), layer = svg.querySelector('.edges'), search = byId('search'), shown = byId('shown'), about = byId('about');
const buttons = [...document.querySelectorAll('.states button')];
const nodes = [...svg.querySelectorAll('.node')].map(el => {
  const [x, y] = el.getAttribute('transform').match(/\d+/g).map(Number), source = el.classList.contains('source');
  const name = el.firstElementChild.textContent, state = el.dataset.state.toLowerCase();
  return { el, x, y, home: y, source, name, key: name.toLowerCase(), state, lane: +el.dataset.lane, on: true, edges: [] };
});
const edges = [...svg.querySelectorAll('.edge')].map(el => {
  const e = { el, from: nodes[el.dataset.from], to: nodes[el.dataset.to], home: el.getAttribute('d'), use: el.textContent };
  e.from.edges.push(e);
  e.to.edges.push(e);
  return e;
});
for (const n of nodes) n.edges.sort((a, b) => other(n, a).home - other(n, b).home);
const ofElement = new Map(nodes.map(n => [n.el, n])), nodeOf = event => ofElement.get(event.target.closest?.('.node'));
const workloads = nodes.filter(n => !n.source).length, width = svg.getAttribute('width'), homeBox = svg.getAttribute('viewBox');
const right = nodes.find(n => n.source)?.x, left = nodes.length && nodes[0].x + +nodes[0].el.querySelector('rect').getAttribute('width');
let at = null, hits = [], drawn = new Set([...nodes, ...edges]), lit = [];

function other(n, e) { return n === e.from ? e.to : e.from; }
function around(some) { return new Set(some.concat(some.flatMap(n => n.edges.map(e => other(n, e))))); }
function counted(n, what) { return `${n} ${what}${n === 1 ? '' : 's'}`; }

// show shows some nodes, close together, and what connects them; null: all, where they were.
function show(some) {
  for (const n of nodes) {
    n.on = !some || some.has(n);
    n.y = n.home;
    n.el.classList.toggle('hit', !!some && hits.includes(n));
  }
  const view = some ? `0 0 ${width} ${place(nodes.filter(n => n.on))}` : homeBox;
  for (const n of nodes) if (n.on) n.el.setAttribute('transform', `translate(${n.x} ${n.y})`);
  for (const e of edges) if (e.from.on && e.to.on) e.el.setAttribute('d', some ? path(e) : e.home);
  svg.setAttribute('viewBox', view);
  svg.setAttribute('height', view.split(' ')[3]);
  if (at && !at.on) select(null);
  const count = source => nodes.filter(n => n.on && n.source === source).length, of = n => some ? ` of ${n}` : '';
  shown.textContent = `${count(false)}${of(workloads)} workloads, ${count(true)}${of(nodes.length - workloads)} sources`;
  scrollTo(0, 0);
  draw();
}

// place stacks workloads, and sources beside the middle of their users, and returns how tall this is.
function place(some) {
  const users = some.filter(n => !n.source), sources = some.filter(n => n.source), rows = Math.max(users.length, sources.length);
  users.forEach((n, i) => n.y = first + (rows - users.length) * row / 2 + i * row);
  for (const s of sources) {
    const ys = s.edges.filter(e => e.from.on).map(e => e.from.y);
    s.y = ys.length ? ys.reduce((a, b) => a + b) / ys.length : first;
  }
  sources.sort((a, b) => a.y - b.y);
  let free = first;
  sources.forEach(s => free = (s.y = Math.max(s.y, free)) + row);
  free = first + rows * row;
  sources.reverse().forEach(s => free = s.y = Math.min(s.y, free - row));
  return 2 * first + rows * row;
}

function path({ from, to }) {
  const a = from.y + box / 2, b = to.y + box / 2, x = to.lane, middle = Math.trunc((left + right) / 2);
  if (!x) return `M${left} ${a}C${middle} ${a} ${middle} ${b} ${right} ${b}`;
  const r = Math.max(-6, Math.min(6, Math.trunc((b - a) / 2))), side = Math.abs(r);
  return `M${left} ${a}H${x - side}Q${x} ${a} ${x} ${a + r}V${b - r}Q${x} ${b} ${x + side} ${b}H${right}`;
}

// draw puts what is in sight into the document, which makes thousands of nodes quick.
function draw() {
  const top = -svg.getBoundingClientRect().top + svg.viewBox.baseVal.y - 400, bottom = top + innerHeight + 800;
  const sees = n => n.y >= top && n.y <= bottom;
  const crosses = ({ from: { y: a }, to: { y: b } }) => Math.max(a, b) >= top && Math.min(a, b) <= bottom;
  const next = new Set(edges.filter(e => e.from.on && e.to.on && (e.to.lane ? sees(e.from) || sees(e.to) : crosses(e))));
  for (const n of nodes) if (n.on && sees(n) || n === at) next.add(n);
  for (const it of drawn) if (!next.has(it)) it.el.remove();
  for (const it of next) if (!drawn.has(it)) (it.from ? layer : svg).append(it.el);
  drawn = next;
}

// find shows what the search matches: all its words, in names or states.
function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(w => w);
  const matches = (n, w) => w.startsWith('state=') ? n.state && n.state.startsWith(w.slice(6)) : n.key.includes(w);
  hits = words.length ? nodes.filter(n => words.every(w => matches(n, w))) : [];
  show(words.length ? around(hits) : null);
  for (const b of buttons) b.setAttribute('aria-pressed', words.includes('state=' + b.dataset.state.toLowerCase()));
}

function light(n) {
  lit.forEach(e => e.el.classList.remove('lit'));
  lit = n ? n.edges : [];
  lit.forEach(e => e.el.classList.add('lit'));
  svg.classList.toggle('lighting', !!n);
}

// select moves the focus to a node, and lists what it is connected with.
function select(n) {
  at?.el.classList.remove('at');
  at = n;
  light(n);
  about.classList.toggle('empty', !n);
  if (!n) return about.replaceChildren();
  n.el.classList.add('at');
  n.el.setAttribute('tabindex', 0);
  n.el.setAttribute('role', 'button');
  draw();
  n.el.focus({ preventScroll: true });
  n.el.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  const make = (what, ...inside) => { const el = document.createElement(what); el.append(...inside); return el; };
  const list = make('ul'), most = 50;
  for (const e of n.edges.slice(0, most)) {
    const to = other(n, e), button = make('button', to.name + ' ', make('small', e.use));
    button.className = to.el.getAttribute('class');
    button.onclick = () => isolate(to);
    list.append(make('li', button));
  }
  if (n.edges.length > most) list.append(make('li', `and ${n.edges.length - most} more`));
  about.replaceChildren(make('h2', n.name), make('p', 'Connected with ' + counted(n.edges.length, n.source ? 'workload' : 'source')), list);
}

function isolate(n) {
  hits = [n];
  show(around(hits));
  select(n);
}

// next returns the node that a key leads to.
function next(key) {
  const same = nodes.filter(n => n.on && n.source === at.source).sort((a, b) => a.y - b.y), i = same.indexOf(at);
  if (/^(j|ArrowDown)$/.test(key)) return same[i + 1];
  if (/^(k|ArrowUp)$/.test(key)) return same[i - 1];
  if (!(at.source ? /^(h|ArrowLeft)$/ : /^(l|ArrowRight)$/).test(key)) return;
  return at.edges.map(e => other(at, e)).filter(n => n.on).sort((a, b) => Math.abs(a.y - at.y) - Math.abs(b.y - at.y))[0];
}

search.addEventListener('input', find);
buttons.forEach(b => b.addEventListener('click', () => {
  search.value = b.getAttribute('aria-pressed') === 'true' ? '' : 'state=' + b.dataset.state;
  find();
}));
svg.addEventListener('click', event => { const n = nodeOf(event); if (n) isolate(n); });
svg.addEventListener('focusin', event => { const n = nodeOf(event); if (n && n !== at) select(n); });
svg.addEventListener('pointerover', event => light(nodeOf(event) ?? at));
addEventListener('scroll', draw);
addEventListener('resize', draw);
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event, typing = event.target === search;
  if (key === 'Escape') {
    search.value = '';
    find();
    at?.el.scrollIntoView({ block: 'center' });
  } else if (key === '/' && !typing) {
    search.focus();
    search.select();
  } else if (typing ? /^(ArrowDown|Enter)$/.test(key) : !at && /^([jk]|Arrow(Down|Up))$/.test(key)) {
    const start = hits[0] ?? nodes.find(n => n.on);
    if (start) select(start);
  } else if (at && key === 'Enter' && event.target === at.el) {
    isolate(at);
  } else if (!typing && at && next(key)) {
    select(next(key));
  } else return;
  event.preventDefault();
});
nodes[0]?.el.setAttribute('tabindex', 0);
show(null);
