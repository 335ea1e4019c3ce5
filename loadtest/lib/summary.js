// handleSummary of every scenario: the figures for go run -C proof ./load, which draws
// them, and the few lines that matter for whoever runs k6 alone.
export function handleSummary(data) {
  const lines = ['', `run ${data.setup_data ? data.setup_data.run : '?'}`];
  const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  for (const name of ['answers_executed', 'answers_replayed', 'answers_in_flight', 'answers_processing', 'answers_refused', 'answers_unavailable', 'answers_none', 'duplicates_sent']) {
    lines.push(`  ${name.padEnd(22)} ${count(name)}`);
  }
  for (const name of ['charges_per_key', 'charges_per_order']) {
    const values = (data.metrics[name] || { values: {} }).values;
    lines.push(`  ${name.padEnd(22)} min ${values.min}, max ${values.max}, of ${values.count || 0}`);
  }
  for (const [name, metric] of Object.entries(data.metrics)) {
    for (const [expression, result] of Object.entries(metric.thresholds || {})) {
      if (!result.ok) lines.push(`  BROKEN: ${name}: ${expression}, and it is ${JSON.stringify(metric.values)}`);
    }
  }
  const out = { stdout: `${lines.join('\n')}\n` };
  if (__ENV.SUMMARY_FILE) out[__ENV.SUMMARY_FILE] = JSON.stringify(data, null, 2);
  return out;
}
