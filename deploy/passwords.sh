# Gives each role of roles.sql the password that docker-compose.yml has for it. The image's entry point reads this file once,
# when it has made the data folder. Who has one of them has no other, and not that of the superuser (POSTGRES_PASSWORD).
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  --set owner="$POSTGRES_OWNER_PASSWORD" --set service="$POSTGRES_SERVICE_PASSWORD" \
  --set audit="$POSTGRES_AUDIT_PASSWORD" <<'SQL'
ALTER ROLE payonce_owner PASSWORD :'owner';
ALTER ROLE payonce_service PASSWORD :'service';
ALTER ROLE payonce_audit PASSWORD :'audit';
SQL
