module follow

go 1.25.0

require github.com/grafana/jfr-parser v0.17.1

require golang.org/x/text v0.37.0 // indirect
