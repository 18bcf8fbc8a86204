// Shows the counters, which the server's file live.json holds, and asks for readers.
'use strict';

const form = document.getElementById('readers');
const state = document.getElementById('state');
const rows = document.querySelectorAll('.live tbody tr');

form.addEventListener('submit', (event) => {
  event.preventDefault();
  fetch(form.action, { method: 'POST', body: new URLSearchParams({ count: event.submitter.value }) }).then((answer) => {
    if (!answer.ok) state.textContent = `The server refuses: ${answer.status}`;
  });
});

function show(live) {
  for (const row of rows) {
    const { key, unit, digits } = row.dataset;
    const values = live.servers.map((server) => server[key]);
    const most = Math.max(...values, 1e-9);
    row.querySelectorAll('td').forEach((cell, at) => {
      const value = values[at];
      const bar = document.createElement('span');
      bar.className = 'bar';
      bar.style.width = `${(100 * (value ?? 0)) / most}%`;
      cell.replaceChildren(value === null ? 'no answer' : `${value.toFixed(digits)} ${unit}`, bar);
    });
  }
  for (const button of form.querySelectorAll('button')) {
    button.setAttribute('aria-pressed', String(Number(button.value) === live.readers));
  }
  const failed = live.servers.filter((server) => server.failure);
  state.textContent = failed.length > 0
    ? failed.map((server) => `Readers of ${server.name} have stopped: ${server.failure}`).join(' ')
    : `${live.readers} readers of each server.`;
}

async function look() {
  try {
    const answer = await fetch('/live.json', { cache: 'no-store' });
    if (answer.ok) show(await answer.json());
  } catch {
    state.textContent = 'The demonstration has ended.';
  }
  setTimeout(look, 500);
}
look();
