-- The health of a ConfigDependency for Argo CD (resource.customizations.health.configdep.io_ConfigDependency).
--
-- What waits for a restart, or is being restarted, is Progressing; what will not get there by itself is Degraded. Workloads that have
-- not opted in are Suspended while their pods are stale, and so is what cannot be known: neither holds up a sync.
local health = {status = "Progressing", message = "configdep has not seen it yet"}
if obj.status == nil or obj.status.state == nil then
  return health
end
local state = obj.status.state
health.message = state .. " (" .. (obj.status.reason or "") .. "): " .. (obj.status.message or "")
if state == "InSync" then
  health.status = "Healthy"
elseif state == "Settling" or state == "Pending" or state == "RollingOut" then
  health.status = "Progressing"
elseif state == "Unknown" or obj.spec.reload.mode == "Off" and state == "Stale" then
  health.status = "Suspended"
else
  health.status = "Degraded"
end
return health
