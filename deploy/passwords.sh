# Gives the roles of roles.sql the password of the container's own role. The image's entry point reads this file once,
# when it has made the data folder. In production each role has its own password.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  --set password="$POSTGRES_PASSWORD" <<'SQL'
ALTER ROLE payonce_owner PASSWORD :'password';
ALTER ROLE payonce_service PASSWORD :'password';
ALTER ROLE payonce_audit PASSWORD :'password';
SQL
