// The settings of a run, by k6's -e or by the environment, and their
// defaults.

const bases = (__ENV.API_URL || '').split(',').map((url) => url.trim().replace(/\/+$/, '')).filter((url) => url !== '');

export const config = {
  bases, // several API processes: requests go to them in turn, so that duplicates meet in the database and not in one process
  simulator: (__ENV.STRIPESIM_URL || '').replace(/\/+$/, ''), // its admin port
  apiKey: __ENV.API_KEY || '',
  run: __ENV.RUN_ID || '', // part of every key: two runs with one tenant do not meet
  vus: number('VUS', 10),
  patience: number('PATIENCE', 60), // seconds until every request that was started must be final
};

// number reads a setting.
export function number(name, fallback) {
  const value = __ENV[name];
  if (value === undefined || value === '') return fallback;
  const n = Number(value);
  if (!Number.isFinite(n) || n <= 0) throw new Error(`${name} is ${value}, and must be a number above zero`);
  return n;
}

// duration reads DURATION.
export function duration(fallback) {
  return __ENV.DURATION || fallback;
}

// seconds is a duration like "90s" or "1m30s" as a number.
export function seconds(text) {
  const units = { ms: 0.001, s: 1, m: 60, h: 3600 };
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  if (parts.length === 0 || parts.map((p) => p[0]).join('') !== text) throw new Error(`DURATION is ${text}, and must be like 30s or 1m30s`);
  return parts.reduce((sum, p) => sum + Number(p[1]) * units[p[2]], 0);
}
