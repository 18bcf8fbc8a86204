'use strict';
// Every text from the server is set as text, never as HTML: paths of requests are chosen by clients.
const PAUSE = 2000, POINTS = 150;
const $ = id => document.getElementById(id);
const add = (parent, name, text, kind) => {
  const child = document.createElement(name);
  if (text !== undefined) child.textContent = text;
  if (kind) child.className = kind;
  parent.append(child);
  return child;
};
const round = n => n >= 100 || n === Math.round(n) ? Math.round(n).toLocaleString('en') : n.toPrecision(2);
const bytes = n => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
  return round(n) + ' ' + units[unit];
};
const span = seconds => {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = Math.max(0, seconds < 1 ? 3 : units.findIndex(([, length]) => seconds >= length));
  return units.slice(first, first + 2).map(([unit, length], at) =>
    Math.floor((at ? seconds % units[first][1] : seconds) / length) + ' ' + unit).join(' ');
};
const time = micros => !micros ? '–' : micros === Infinity ? '> 1 min' : micros >= 1e6 ? round(micros / 1e6) + ' s' : micros >= 1000 ? round(micros / 1000) + ' ms' : round(micros) + ' µs';
const total = list => list.reduce((sum, value) => sum + value, 0);

// The time below which this part of all requests lie: the upper bound of its bucket.
const percentile = (buckets, bounds, part) => {
  const count = total(buckets);
  let seen = 0;
  for (let at = 0; count && at < buckets.length; at++)
    if ((seen += buckets[at]) >= count * part) return at < bounds.length ? bounds[at] : Infinity;
  return 0;
};

const CHARTS = [
  { title: 'Requests per second', show: round, lines: [p => p.requests] },
  { title: 'Bytes per second', show: bytes, lines: [p => p.handedOver, p => p.copied], names: ['handed over', 'copied'] },
  { title: 'Connections', show: round, lines: [p => p.connections, p => p.busyConnections], names: ['all', 'busy'] },
  { title: 'Workers', show: round, lines: [p => p.busy, p => p.waiting], names: ['busy', 'requests waiting'] },
  { title: 'Time of a request', show: time, lines: [p => p.median, p => p.p99], names: ['median', '99 %'] },
  { title: 'Errors per second (5xx)', show: round, lines: [p => p.errors] },
];
const points = [];

const drawChart = ({ figure, show, lines, names }) => {
  const value = (line, point) => Number.isFinite(line(point)) ? line(point) : 6e7;
  const most = Math.max(1e-9, ...points.flatMap(point => lines.map(line => value(line, point))));
  const last = points[points.length - 1];
  figure.now.forEach((element, at) => {
    element.textContent = (names ? names[at] + ' ' : '') + show(lines[at](last));
  });
  figure.paths.forEach((path, at) => path.setAttribute('d', points.map((point, x) =>
    (x ? 'L' : 'M') + (POINTS - points.length + x) + ' ' + (58 - 56 * value(lines[at], point) / most).toFixed(2)).join('')));
};
const svg = (name, attributes) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  return element;
};
for (const chart of CHARTS) {
  const figure = add($('charts'), 'figure');
  const caption = add(figure, 'figcaption', chart.title);
  const values = add(caption, 'span');
  chart.figure = { now: chart.lines.map((_, at) => {
    if (at) values.append(' ');
    return add(values, 'b', '', chart.names && ['one', 'two'][at]);
  }) };
  const image = svg('svg', { viewBox: '0 0 ' + (POINTS - 1) + ' 60', preserveAspectRatio: 'none', role: 'img', 'aria-label': chart.title });
  image.append(svg('path', { d: 'M0 59H' + (POINTS - 1), class: 'base' }));
  chart.figure.paths = chart.lines.map((_, at) => svg('path', { class: ['one', 'two'][at] }));
  image.append(...chart.figure.paths);
  figure.append(image);
}

const table = (id, heads, rows, none) => {
  const element = $(id);
  element.replaceChildren();
  const line = add(add(element, 'thead'), 'tr');
  for (const head of heads) add(line, 'th', head, head === 'Request' ? 'long' : '').scope = 'col';
  const body = add(element, 'tbody');
  for (const row of rows) {
    const line = add(body, 'tr');
    for (const cell of row) Array.isArray(cell) ? add(line, 'td', ...cell) : add(line, 'td', cell);
  }
  if (!rows.length) add(add(body, 'tr'), 'td', none, 'none').colSpan = heads.length;
};

const sums = figures => {
  const buckets = figures.bounds.map(() => 0).concat(0);
  for (const site of figures.sites) site.times.forEach((count, at) => { buckets[at] += count; });
  return {
    at: performance.now(), started: figures.started, buckets,
    requests: total(figures.sites.map(site => site.requests)),
    handedOver: total(figures.sites.map(site => site.handed_over)),
    copied: total(figures.sites.map(site => site.copied)),
    errors: total(figures.sites.map(site => site.errors)),
  };
};
let before;
const show = figures => {
  const now = sums(figures);
  const busy = total(figures.pools.map(pool => pool.busy)), waiting = total(figures.pools.map(pool => pool.waiting));
  if (before && before.started === now.started) {
    const seconds = (now.at - before.at) / 1000;
    const rate = key => Math.max(0, now[key] - before[key]) / seconds;
    const buckets = now.buckets.map((count, at) => Math.max(0, count - before.buckets[at]));
    points.push({
      requests: rate('requests'), handedOver: rate('handedOver'), copied: rate('copied'), errors: rate('errors'),
      connections: figures.connections, busyConnections: figures.connections - figures.idle_connections, busy, waiting,
      median: percentile(buckets, figures.bounds, .5), p99: percentile(buckets, figures.bounds, .99),
    });
    if (points.length > POINTS) points.shift();
    CHARTS.forEach(drawChart);
  }
  before = now;
  $('version').textContent = figures.version;
  $('state').className = '';
  $('state').textContent = 'runs for ' + span(figures.uptime);
  const list = $('now');
  list.replaceChildren();
  for (const [name, value] of [
    ['requests', round(now.requests)], ['handed over', bytes(now.handedOver)], ['copied', bytes(now.copied)],
    ['connections', round(figures.connections)], ['of them idle', round(figures.idle_connections)],
    ['workers busy', busy + ' of ' + total(figures.pools.map(pool => pool.workers))], ['requests waiting', round(waiting)],
    ['malformed requests', round(figures.malformed)], ['log lines lost', round(figures.log_lines_dropped)],
  ]) {
    const pair = add(list, 'div');
    add(pair, 'dt', name);
    add(pair, 'dd', value);
  }
  table('sites', ['Site', 'Requests', '4xx', '5xx', 'Handed over', 'Copied', 'Median', '99 %'], figures.sites.map(site => [
    site.name, round(site.requests), round(site.refusals), [round(site.errors), site.errors ? 'bad' : ''],
    bytes(site.handed_over), bytes(site.copied),
    time(percentile(site.times, figures.bounds, .5)), time(percentile(site.times, figures.bounds, .99)),
  ]), 'no site has had a request');
  table('pools', ['Pool', 'Workers', 'Busy', 'Waiting', 'Requests', 'Slow', 'Too few workers'], figures.pools.map(pool => [
    pool.name, pool.workers, pool.busy, [pool.waiting, pool.waiting ? 'bad' : ''], round(pool.requests), round(pool.slow), round(pool.limit_reached),
  ]), 'there is no pool');
  const pools = new Map(figures.pools.flatMap(pool => pool.at_work.map(one => [one.pid, pool.name])));
  const work = figures.requests.map(one => [
    span(one.age / 1000), one.phase.replaceAll('_', ' '), one.client, one.site, one.host ?? '', pools.get(one.worker) ?? '', one.worker ?? '', [one.request, 'long'],
  ]);
  const known = new Set(figures.requests.map(one => one.number));
  for (const pool of figures.pools) {
    for (const one of pool.at_work.filter(one => !known.has(one.at_work?.number))) {
      const more = one.at_work;
      work.push([
        more ? span(more.age / 1000) : '', more ? more.phase.replaceAll('_', ' ') : '', more?.client ?? '', more?.site ?? '', more?.host ?? '',
        pool.name, one.pid, [one.request, 'long'],
      ]);
    }
  }
  table('work', ['Age', 'Phase', 'Client', 'Site', 'Host', 'Pool', 'Process', 'Request'], work, 'no request is at work');
  table('upstreams', ['Upstream', 'Host', 'State', 'Busy', 'Requests'], figures.upstreams.flatMap(upstream => upstream.hosts.map(host => [
    upstream.name, host.address, host.down_for === null ? 'up' : ['down', 'bad'], host.busy, round(host.requests),
  ])), 'there is no upstream');
  table('limits', ['Limit', 'Times'], Object.entries(figures.limits).map(([name, times]) => [name, round(times)]), 'none');
};

const ask = async () => {
  try {
    const response = await fetch('?json', { cache: 'no-store' });
    if (!response.ok) throw new Error('status ' + response.status);
    show(await response.json());
  } catch (error) {
    $('state').className = 'bad';
    $('state').textContent = 'the server does not answer: ' + error.message;
  }
  setTimeout(ask, PAUSE);
};
ask();
