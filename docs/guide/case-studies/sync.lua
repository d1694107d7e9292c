-- What clients of a sync server ask for: mostly whether there is news, then pages of it, then they send theirs.
local users, idx = {}, math.floor(os.time() * 1000 % 100000000) * 1000
for line in io.lines("tokens.txt") do
  local name, token, host, count = line:match("(%S+) (%S+) (%S+) (%S+)")
  users[name] = { name = name, token = token, host = host, count = tonumber(count) }
end
local only, who = os.getenv("ONLY"), os.getenv("WHO")
local function uuid()
  return ("xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx"):gsub("x", function() return ("%x"):format(math.random(0, 15)) end)
end
local function record(user)
  idx = idx + 1
  return ('{"id":"%s","idx":%d,"host":{"id":"%s","name":""},"timestamp":1790000000000000000,"version":"v1","tag":"kv","data":{"data":"%s","content_encryption_key":"%s"}}')
    :format(uuid(), idx, user.host, ("x"):rep(260), ("k"):rep(140))
end
request = function()
  local user = who and users[who] or math.random() < 0.1 and users.old or users.new
  local what = only or ""
  local dice = math.random(100)
  if only then dice = 0 end
  local head = { ["Authorization"] = "Token " .. user.token, ["Content-Type"] = "application/json" }
  if dice > 60 or what == "index" then return wrk.format("GET", "/api/v0/record", head) end
  if dice > 30 or what == "next" then
    return wrk.format("GET", ("/api/v0/record/next?host=%s&tag=history&start=%d&count=100"):format(user.host, math.random(0, user.count - 100)), head)
  end
  if dice > 10 or what == "post" then
    local all = {}
    for i = 1, 5 do all[i] = record(user) end
    return wrk.format("POST", "/api/v0/record", head, "[" .. table.concat(all, ",") .. "]")
  end
  if dice > 1 or what == "user" then return wrk.format("GET", "/user/" .. user.name, head) end
  return wrk.format("POST", "/login", { ["Content-Type"] = "application/json" }, ('{"username":"%s","password":"%s"}'):format(user.name, user.name))
end
