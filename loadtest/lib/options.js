// The options that all scenarios share.
import { thresholds } from './metrics.js';

// options of a scenario: how load is made, and further thresholds.
export function options(scenarios, more = {}) {
  return {
    scenarios,
    thresholds: thresholds(more),
    batch: 200, // k6's default of six at once to one host would be no storm
    batchPerHost: 200,
    setupTimeout: '1m',
    teardownTimeout: '10m', // it waits for unfinished requests, and reads every order of the run
    summaryTrendStats: ['count', 'min', 'avg', 'med', 'p(90)', 'p(95)', 'p(99)', 'max'],
  };
}
