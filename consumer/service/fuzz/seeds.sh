#!/usr/bin/env bash
# Writes the initial corpus of the service's fuzz targets: seeds.sh FOLDER creates a subfolder for each target.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
folder=$1
mkdir -p "$folder"/{requests,pushed,messages,kept}
cd "$folder"

# request NAME METHOD PATH [HEADER…]: the body is the input.
request() {
  local name=$1 method=$2 path=$3 body
  shift 3
  body=$(mktemp)
  cat >"$body"
  {
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n' "$method" "$path" "$(wc -c <"$body")"
    [ $# = 0 ] || printf '%s\r\n' "$@"
    printf '\r\n'
    cat "$body"
  } >"requests/$name"
  rm "$body"
}
small=$root/fixtures/cases/62_many_types.jfr
hello='{"protocol":1,"key":"h/b/2/1","name":"x","host":"h","pid":2,"startTime":1,"labels":{"a":"b"},"modes":[{"mode":"CPU","available":true}]}'
create='{"mode":"CPU","duration":30,"interval":"10ms","engines":["alloc@512k"],"labels":{"a":"b"}}'
agent='X-Flightline-Agent: SECRET'
for path in targets targets/TARGET runs runs/RUN targets/TARGET/runs targets/TARGET/window '../metrics' '../openapi.json' \
  'targets/TARGET/window?steps=9' 'targets/TARGET/window/files/html?from=0&to=99999999999999' 'runs/RUN/files/folded?event=cpu' \
  'compare/html?before=run:RUN&after=window:TARGET:0:9999999999999' 'taskmanagers/TARGET/profiler' 'runs?group=RUN'; do
  request "get-$(tr -c 'a-z0-9\n' _ <<<"$path")" GET "/v1/$path" </dev/null
done
request range GET /runs/RUN/files/jfr 'Range: bytes=10-99' 'If-Range: "RUN-jfr-"' </dev/null
request commands GET '/agents/TARGET/commands?after=0' "$agent" </dev/null
request hello POST /v1/agents <<<"$hello"
request create POST /v1/targets/TARGET/runs 'Origin: http://localhost' <<<"$create"
request group PUT /v1/runs <<<'{"targets":["TARGET","x"],"mode":"wall","duration":1}'
request cancel POST /v1/runs/RUN/cancel <<<'{}'
request progress POST /v1/agents/TARGET/runs/RUN "$agent" <<<'{"state":"started","effectiveMode":"CPU (timer)","message":"x"}'
request recording PUT '/v1/agents/TARGET/runs/RUN/recording?message=x&ended=y' "$agent" <"$small"
request chunks POST /v1/agents/TARGET/chunks "$agent" <"$small"
request session POST /v1/session 'Cookie: flightline=x' <<<'{"token":"x"}'
request ingest POST '/ingest?name=app%7Bk%3Dv%7D&format=jfr&from=1&until=2' <"$small"
printf 'POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n' ${#hello} "$hello" >requests/chunked
cat requests/get-targets requests/range requests/get-targets_______ >requests/several

# pushed NAME QUERY CONTENT-TYPE: the body is the input.
pushed() {
  { printf '%s\n%s\n' "$2" "$3"; cat; } >"pushed/$1"
}
query='name=shop.cart%7Benv%3Dtest,version%3D1.2%7D&from=1700000000&until=1700000010&format'
pushed jfr "$query=jfr" '' <"$small"
gzip -nc "$small" | pushed packed "$query=jfr&spyName=x" application/octet-stream
printf 'main;f;g 42\nmain;h 7\n' | pushed folded "$query=folded&units=samples" text/plain
form() {
  printf -- '--b\r\nContent-Disposition: form-data; name="jfr"; filename="jfr"\r\nContent-Type: application/octet-stream\r\n\r\n'
  cat "$1"
  printf -- '\r\n--b\r\nContent-Disposition: form-data; name="labels"; filename="labels"\r\n\r\n'
  printf '\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01\x12\x05\x08\x01\x12\x01k'
  printf -- '\r\n--b--\r\n'
}
form "$small" | pushed form "$query=jfr" 'multipart/form-data; boundary=b'

printf '\x00\x0a\x0c\x08\x01\x12\x08\x0a\x04\x08\x01\x10\x02\x0a\x00\x12\x05\x08\x01\x12\x01k\x12\x05\x08\x02\x12\x01v' >messages/labels
printf '\x01\x0a\x02\x0a\x00\x12\x02\x0a\x00' >messages/otlp
printf '\x02\x0a\x12\x0a\x10\x0a\x08__name__\x12\x04shop\x12\x03\x0a\x01x' >messages/push
gzip -nc "$small" | cat <(printf '\x01') - >messages/packed

id=1700000000000-0123456789abcdef
target='{"id":"x-1-1","name":"x","host":"h","pid":1,"startTime":1,"joinedTime":1,"lastSeen":1,"state":"GONE","gone":"","labels":{},"modes":[],"run":null}'
run='{"id":"'$id'","group":null,"target":"x-1-1","targetName":"x","status":"FINISHED","mode":"CPU","effectiveMode":"","interval":"","engines":[],"triggerTime":1,"finishedTime":2,"duration":1,"elapsed":1,"message":"","outputFile":"x.html","bytes":9,"events":["cpu"],"labels":{},"files":["html"]}'
printf '\x00{"run":%s,"of":%s}' "$run" "$target" >kept/description
printf '\x011-2-0123456789abcdef.jfr' >kept/name
printf '\x02\x08bytes=0-9' >kept/range
printf '\x02\x20bytes=-500' >kept/suffix
printf '\x03\xe8\x03\x00\x01\xe8\x03\x08\x02\xff\xff\x20\x03' >kept/line
