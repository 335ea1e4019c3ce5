#!/bin/sh
# Copies the rows of one tenant from one cell's database to another's, in one snapshot and one transaction: the third step
# of moving a tenant (docs/cells.md), and of no use alone. It changes nothing in SOURCE.
#
#   SOURCE=postgres://… TARGET=postgres://… deploy/copy-tenant.sh ten_…
#
# The role of SOURCE must read all tables: payonce_audit does. That of TARGET must own the tables and may set
# session_replication_role: a superuser may, and the owner after GRANT SET ON PARAMETER. So neither triggers nor foreign
# keys are checked again, which would refuse what was true at its time; constraints and unique indexes are.
set -eu
tenant=${1:?usage: SOURCE=… TARGET=… deploy/copy-tenant.sh TENANT}
case $tenant in *[!a-z0-9_]*) echo "copy-tenant: $tenant is no tenant's id" >&2; exit 2 ;; esac
: "${SOURCE:?}" "${TARGET:?}"
umask 077 # what follows is the tenant's data
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "copy-tenant: $*" >&2; exit 1; }

# Every user of the machine sees the arguments of a program, so a password is taken out of its URL: psql gets it in its
# environment. printf is the shell's own.
without_password() { printf %s "$1" | sed -E 's#^([a-z]+://[^/@:]*):[^/@]*@#\1@#'; }
password_of() {
  ENCODED=$(printf %s "$1" | sed -nE 's#^[a-z]+://[^/@:]*:([^/@]*)@.*#\1#p') awk 'BEGIN {
    s = ENVIRON["ENCODED"]; digits = "0123456789abcdef"
    while (match(s, /%[0-9A-Fa-f][0-9A-Fa-f]/)) {
      code = 16 * (index(digits, tolower(substr(s, RSTART + 1, 1))) - 1) + index(digits, tolower(substr(s, RSTART + 2, 1))) - 1
      printf "%s%c", substr(s, 1, RSTART - 1), code
      s = substr(s, RSTART + 3)
    }
    printf "%s", s
  }'
}
case $SOURCE$TARGET in *password=*) fail "give the passwords in the URLs, postgres://user:password@host/database, or in PGPASSFILE" ;; esac
source_url=$(without_password "$SOURCE") source_password=$(password_of "$SOURCE")
target_url=$(without_password "$TARGET") target_password=$(password_of "$TARGET")
unset SOURCE TARGET
sql() { PGOPTIONS="-c payonce.tenants=$tenant" psql --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "$@"; }
source_sql() { PGPASSWORD=${source_password:-${PGPASSWORD-}} sql "$source_url" "$@"; }
target_sql() { PGPASSWORD=${target_password:-${PGPASSWORD-}} sql "$target_url" "$@"; }

# Both have the same tables, and the target is the cell that the source says the tenant moves to.
schema="SELECT md5(string_agg(s, ',' ORDER BY s)) FROM (SELECT c.relname || '.' || a.attname || ' ' || a.atttypid::regtype AS s
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace) s"
[ "$(source_sql -c "$schema")" = "$(target_sql -c "$schema")" ] || fail "the schemas differ: run the same version's migrate in both"
moved_to=$(source_sql -c "SELECT coalesce(moved_to, '') FROM tenants WHERE id = '$tenant'")
[ -n "$moved_to" ] || fail "in SOURCE no tenant $tenant is marked as moved; see docs/cells.md"
[ "$(target_sql -c "SELECT name FROM cell")" = "$moved_to" ] || fail "TARGET is not the cell $moved_to, to which the tenant moves"

# Every table with a tenant, from the catalogue, so that none is forgotten; and its columns by name, because their order may
# differ, without those that PostgreSQL computes. API keys stay: they name the other cell.
tables=$(source_sql -F ' ' -c "
  SELECT c.relname, t.attname, string_agg(quote_ident(a.attname), ',' ORDER BY a.attnum)
  FROM pg_class c
  JOIN pg_attribute t ON t.attrelid = c.oid AND (t.attname = 'tenant_id' OR c.relname = 'tenants' AND t.attname = 'id')
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname <> 'api_keys'
  GROUP BY 1, 2 ORDER BY c.relname <> 'tenants', 1")

# What is unfinished in that snapshot: two cells would finish it.
cat > "$dir/read" << EOF
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
\\o '$dir/unfinished'
SELECT 'key ' || key FROM idempotency_keys WHERE tenant_id = '$tenant' AND finished_at IS NULL
UNION ALL SELECT 'event ' || aggregate_id || ' ' || version FROM outbox_events WHERE tenant_id = '$tenant' AND published_at IS NULL
UNION ALL SELECT 'received event ' || event_id FROM inbox_events WHERE tenant_id = '$tenant' AND status <> 'done'
UNION ALL SELECT 'delivery ' || id FROM webhook_deliveries WHERE tenant_id = '$tenant' AND status = 'pending' -- part: webhooks
UNION ALL SELECT 'refund owed of ' || payment_id FROM refunds_owed WHERE tenant_id = '$tenant' AND ended_at IS NULL;
\\o
EOF
echo "BEGIN; SET LOCAL session_replication_role = replica;" > "$dir/write"
echo "$tables" | while read -r table key columns; do
  printf '%s\n' "\\copy (SELECT $columns FROM $table WHERE $key = '$tenant') TO '$dir/$table.rows'" >> "$dir/read"
  printf '%s\n' "\\copy $table ($columns) FROM '$dir/$table.rows'" >> "$dir/write"
done
echo "COMMIT;" | tee -a "$dir/read" >> "$dir/write"
source_sql -f "$dir/read"
[ ! -s "$dir/unfinished" ] || fail "unfinished in SOURCE, so nothing was copied:
$(cat "$dir/unfinished")"
target_sql -f "$dir/write"

# What was read, a row a line, is what is there. SOURCE itself may have gone on: its consumers and reapers still run.
echo "$tables" | while read -r table key columns; do
  from=$(($(wc -l < "$dir/$table.rows"))) to=$(target_sql -c "SELECT count(*) FROM $table WHERE $key = '$tenant'")
  [ "$from" = "$to" ] || fail "$from rows of $table were read, and $to are in TARGET"
  echo "$table $to"
done
