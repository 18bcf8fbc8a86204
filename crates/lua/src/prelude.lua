-- Builds the environment of all scripts of a state. Runs once; `rust` has the functions that are not written in Lua.
--
-- Scripts share only tables that they cannot change: each library is an empty table with a protected metatable that refers to
-- the real table. A script's own globals are in a table that is made for the run.

local rust = ...

local error, getmetatable, next, pairs, rawequal, rawget, rawlen, rawset, select, setmetatable, tostring, type =
	error, getmetatable, next, pairs, rawequal, rawget, rawlen, rawset, select, setmetatable, tostring, type
local to_integer, tonumber = math.tointeger, tonumber
local real_string, real_table = string, table
local concat, sort, unpack = table.concat, table.sort, table.unpack
local create, resume, close_coroutine = rust.create_coroutine, coroutine.resume, coroutine.close
local running, yield = coroutine.running, coroutine.yield
local protected_call = pcall

local shielded = setmetatable({}, { __mode = "k" })

local function read_only()
	error("lua table is read-only", 2)
end

-- Iterates over a table without handing it out.
local function each(real)
	local key, value
	return function()
		key, value = next(real, key)
		return key, value
	end
end

-- A table that reads from `real` and cannot be changed.
local function shield(real)
	local shown = setmetatable({}, {
		__index = real,
		__newindex = read_only,
		__pairs = function() return each(real) end,
		__metatable = false,
	})
	shielded[shown] = true
	return shown
end

-- An error that ends the run cannot be caught. Errors of functions that are not written in Lua become strings.
local function settle(ok, ...)
	if ok then
		return ok, ...
	end
	local value = (...)
	if rust.is_fatal(value) then
		error(value, 0)
	end
	return false, rust.caught(value)
end

local globals = {
	_VERSION = _VERSION,
	assert = assert,
	error = error,
	getmetatable = getmetatable,
	ipairs = ipairs,
	next = next,
	pairs = pairs,
	rawequal = rawequal,
	rawget = rawget,
	rawlen = rawlen,
	select = select,
	tonumber = tonumber,
	tostring = tostring,
	type = type,
}

-- Number of calls of pcall within one another, per coroutine. Lua limits them in the main coroutine alone; in others 100,000
-- are possible, and each error on so high a stack takes milliseconds.
local depths = setmetatable({}, { __mode = "k" })
local MAX_DEPTH = 150

local function leave(co, ...)
	depths[co] = depths[co] - 1
	return ...
end

local function protect(...)
	local co, is_main = running()
	if is_main then
		return protected_call(...)
	end
	local depth = depths[co] or 0
	if depth == MAX_DEPTH then
		return false, "C stack overflow"
	end
	depths[co] = depth + 1
	return leave(co, protected_call(...))
end

function globals.pcall(...)
	return settle(protect(...))
end

local function handle(handler, ok, ...)
	if ok then
		return true, ...
	end
	return false, select(2, settle(protected_call(handler, ...)))
end

-- The handler runs after the function has been left: while an error of a budget check is handled, no checks take place.
function globals.xpcall(f, handler, ...)
	return handle(handler, settle(protect(f, ...)))
end

function globals.rawset(t, key, value)
	if shielded[t] then
		read_only()
	end
	return rawset(t, key, value)
end

function globals.setmetatable(t, metatable)
	-- A finalizer could run during another request.
	if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
		error("__gc is not available to scripts in the server", 2)
	end
	return setmetatable(t, metatable)
end

function globals.collectgarbage(what)
	return what == "count" and rust.used_memory() / 1024 or 0
end

function globals.print(...)
	local texts = {}
	for i = 1, select("#", ...) do
		texts[i] = tostring((select(i, ...)))
	end
	rust.log(concat(texts, "\t"))
end

-- Functions of the table library that could work for long within one instruction, written in Lua so that instructions are counted.

local tables = { pack = rust.worked(real_table.pack) }

-- An argument that has to be an integer, as the library reads it.
local function integer(value, number, name)
	local read = type(value) == "string" and tonumber(value) or value
	local whole = type(read) == "number" and to_integer(read)
	if not whole then
		local why = type(read) == "number" and "number has no integer representation" or "number expected, got " .. type(value)
		error("bad argument #" .. number .. " to '" .. name .. "' (" .. why .. ")", 3)
	end
	return whole
end

-- The library reads elements through metatables, and each may lead to another table.
local function plain(list, first, last)
	if type(list) ~= "table" or getmetatable(list) == nil then
		return list
	end
	local copy = {}
	for i = first, last do
		copy[i] = list[i]
	end
	return copy
end

function tables.unpack(list, first, last)
	if last == nil and type(list) ~= "table" and getmetatable(list) == nil then
		error("bad argument #1 to 'unpack' (table expected, got " .. type(list) .. ")", 2)
	end
	first, last = integer(first or 1, 2, "unpack"), integer(last or #list, 3, "unpack")
	if last - first > 1000 then
		rust.charge(last - first)
		list = plain(list, first, last)
	end
	return unpack(list, first, last)
end

function tables.insert(t, ...)
	local count, last = select("#", ...), #t + 1
	if count == 1 then
		t[last] = (...)
	elseif count == 2 then
		local place, value = ...
		place = integer(place, 2, "insert")
		if place < 1 or place > last then
			error("bad argument #2 to 'insert' (position out of bounds)", 2)
		end
		for i = last, place + 1, -1 do
			t[i] = t[i - 1]
		end
		t[place] = value
	else
		error("wrong number of arguments to 'insert'", 2)
	end
end

function tables.remove(t, place)
	local last = #t
	place = place == nil and last or integer(place, 2, "remove")
	if place ~= last and (place < 1 or place > last + 1) then
		error("bad argument #2 to 'remove' (position out of bounds)", 2)
	end
	local removed = t[place]
	while place < last do
		t[place] = t[place + 1]
		place = place + 1
	end
	t[place] = nil
	return removed
end

function tables.move(from, first, last, to, target)
	target = target or from
	first, last, to = integer(first, 2, "move"), integer(last, 3, "move"), integer(to, 4, "move")
	if to > first and to <= last and rawequal(target, from) then
		for i = last - first, 0, -1 do
			target[to + i] = from[first + i]
		end
	else
		for i = 0, last - first do
			target[to + i] = from[first + i]
		end
	end
	return target
end

function tables.concat(list, between, first, last)
	first, last = integer(first or 1, 3, "concat"), integer(last or #list, 4, "concat")
	rust.charge(last - first)
	return concat(plain(list, first, last), between, first, last)
end

-- A string of which comparing takes longer than some instructions.
local LONG = 1000

local function less(one, other)
	return one < other
end

-- Sorts a copy: its length cannot change meanwhile. Long strings are compared by Lua, so that instructions are counted.
function tables.sort(list, is_before)
	local copy, count = {}, #list
	for i = 1, count do
		local value = list[i]
		copy[i] = value
		if type(value) == "string" and #value > LONG then
			is_before = is_before or less
		end
	end
	rust.charge(count * 16)
	sort(copy, is_before)
	for i = 1, count do
		list[i] = copy[i]
	end
end

local coroutines = {}
for name, value in pairs(coroutine) do
	coroutines[name] = value
end
coroutines.create = create

-- The first value that a coroutine yields when its script waits for a subrequest. No script can access it.
local WAITS = {}

-- The coroutine of the current run.
local runner

-- A script may wait within its own coroutines: its subrequest passes through them.
local function settle_coroutine(co, ok, first, ...)
	if ok and rawequal(first, WAITS) then
		return settle_coroutine(co, resume(co, yield(WAITS, ...)))
	end
	return settle(ok, first, ...)
end

function coroutines.resume(co, ...)
	return settle_coroutine(co, resume(co, ...))
end

local function unwrap(ok, ...)
	if not ok then
		error((...), 0)
	end
	return ...
end

-- The library's function closes the coroutine after an error, which would run `__close` without budget checks.
function coroutines.wrap(f)
	local wrapped = create(f)
	return function(...)
		return unwrap(settle_coroutine(wrapped, resume(wrapped, ...)))
	end
end

function coroutines.close(...)
	-- If a coroutine has ended within a hook, Lua runs its `__close` methods without hooks.
	if rust.is_fatal() then
		error("the script has used up what it may use", 0)
	end
	return settle(close_coroutine(...))
end

function coroutines.yield(...)
	if running() == runner then
		error("attempt to yield from outside a coroutine", 2)
	end
	return yield(...)
end

rust.replace_string_functions(real_string)
for _, name in next, { "byte", "char", "format", "lower", "pack", "packsize", "reverse", "unpack", "upper" } do
	real_string[name] = rust.worked(real_string[name])
end
local characters = { charpattern = utf8.charpattern, codes = utf8.codes }
for _, name in next, { "char", "codepoint", "len", "offset" } do
	characters[name] = rust.worked(utf8[name])
end
real_string.dump = nil
getmetatable("").__metatable = false

local numbers = {}
for name, value in pairs(math) do
	numbers[name] = value
end
-- All scripts share the generator, so no script may set its seed.
function numbers.randomseed() end

globals.coroutine = shield(coroutines)
globals.math = shield(numbers)

-- Longest format of `os.date`: each of its items may look up the time zone.
local MAX_FORMAT = 1000
local real_date = os.date

local function date(format, ...)
	if type(format) == "string" and #format > MAX_FORMAT then
		error("bad argument #1 to 'date' (format too long)", 2)
	end
	return real_date(format, ...)
end

globals.os = shield({ clock = os.clock, date = date, difftime = os.difftime, time = os.time })
globals.string = shield(real_string)
globals.table = shield(tables)
globals.utf8 = shield(characters)

-- lighty.*

-- A table whose keys Rust reads and writes.
local function accessors(get, set, all)
	local function both()
		local list, at = all(), -1
		return function()
			at = at + 2
			return list[at], list[at + 1]
		end
	end
	local t = setmetatable({}, {
		__index = get,
		__newindex = set or read_only,
		__pairs = all and both,
		__metatable = false,
	})
	shielded[t] = true
	return t
end

-- Passes only the last argument, so that `f(x)` and `t:f(x)` mean the same.
local function with_last(f)
	return function(...)
		return f((select(-1, ...)))
	end
end

local bodies = {
	add = with_last(rust.add_content),
	set = with_last(rust.set_content),
}

local function response_body(_, key)
	local method = bodies[key]
	if method then
		return method
	end
	return rust.content(key)
end

local request_bodies = { set = with_last(rust.set_body), add = with_last(rust.add_body) }

local function request_body(_, key)
	local method = request_bodies[key]
	if method then
		return rust.has_body() and method or nil
	end
	return rust.body(key)
end

local request = accessors(rust.get_header, rust.set_header, rust.all_headers)
local attributes = accessors(rust.get_attribute, rust.set_attribute, rust.all_attributes)
local environment = accessors(rust.get_variable, rust.set_variable, rust.all_variables)
local counters = accessors(rust.get_counter, rust.set_counter)

local c = rust.functions
c.stat = rust.stat

function c.readdir(path)
	local names, at = rust.list(path), 0
	return names and function()
		at = at + 1
		return names[at]
	end
end

function c.urlenc_query(t)
	local parts, at = {}, 0
	if type(t) == "table" then
		for key, value in next, t do
			if type(key) == "string" or type(key) == "number" then
				at = at + 1
				parts[at] = rust.query_pair(key, value)
			end
		end
	end
	return concat(parts, "&")
end

local function irequests()
	error("scripts in the server see their own request alone", 2)
end

local lighty = {
	RESTART_REQUEST = 99,
	c = shield(c),
	env = attributes,
	r = shield({
		req_attr = attributes,
		req_body = accessors(request_body),
		req_env = environment,
		req_header = request,
		req_item = accessors(rust.get_item, rust.set_item),
		resp_body = accessors(response_body),
		resp_header = accessors(rust.get_field, rust.set_field, rust.all_fields),
	}),
	req_env = environment,
	request = request,
	server = shield({
		irequests = irequests,
		plugin_stats = counters,
		stats = accessors(rust.get_stat),
	}),
	stat = rust.stat,
	status = counters,
}

-- Fields that the script of the current run has set in `lighty` itself: `header`, `content`, and other names.
local header, content, others

-- True if the place where a script makes its answer is noted.
local is_explained

-- A table with room for one name: most scripts set one field.
local function with_room()
	local t = { _ = true }
	t._ = nil
	return t
end

setmetatable(lighty, {
	__index = function(_, key)
		if key == "header" then
			header = header or with_room()
			return header
		elseif key == "content" then
			if not content then
				if is_explained then
					rust.note_place()
				end
				content = {}
			end
			return content
		end
		return others and others[key]
	end,
	__newindex = read_only,
	__metatable = false,
})
shielded[lighty] = true

-- `lighty.r = nil` in a script must not affect other scripts, so scripts get a table in front of it.
local shown = setmetatable({}, {
	__index = lighty,
	__newindex = function(_, key, value)
		if key == "header" then
			header = value
		elseif key == "content" then
			if is_explained then
				rust.note_place()
			end
			content = value
		elseif rawget(lighty, key) ~= nil then
			read_only()
		else
			others = others or {}
			others[key] = value
		end
	end,
	__metatable = false,
})
shielded[shown] = true
globals.lighty = shown

-- Requests another page of the site, and waits for it.

local function answered(status, fields, body)
	if not status then
		return nil, fields
	end
	return { status = status, headers = fields, body = body }
end

function rust.sendoff.subrequest(wish)
	if type(wish) == "string" then
		wish = { path = wish }
	elseif type(wish) ~= "table" then
		error("bad argument #1 to 'subrequest' (string or table expected, got " .. type(wish) .. ")", 2)
	end
	if runner == nil then
		error("the text of a script that makes subrequests must contain the word subrequest", 2)
	end
	return answered(yield(WAITS, wish))
end

-- Fragments

-- Ends the making of a fragment, also after an error.
local ending = { __close = function(making) rust.end_fragment(making.number, making.text) end }

function rust.sendoff.fragment(key, seconds, make, tags)
	if type(make) ~= "function" then
		error("bad argument #3 to 'fragment' (function expected, got " .. type(make) .. ")", 2)
	end
	local text, number = rust.ask_fragment(key, seconds, tags)
	if not text then
		local making <close> = number and setmetatable({ number = number }, ending)
		text = make()
		if making then
			making.text = text
		end
	end
	if type(text) ~= "string" then
		error("the function that makes a fragment must return a string, not a " .. type(text), 2)
	end
	return text
end

rust.sendoff.fragments = shield(rust.sendoff.fragments)
rust.sendoff.shared = shield(rust.sendoff.shared)
rust.sendoff.json = shield(rust.sendoff.json)
globals.sendoff = shield(rust.sendoff)

-- A run

local of_script = { __index = globals, __metatable = false }
local current

function globals.load(text, name, mode, environment)
	if type(text) ~= "string" then
		error("bad argument #1 to 'load' (string expected, got " .. type(text) .. ")", 2)
	end
	if environment == nil then
		environment = current
	end
	return rust.load(text, name, environment)
end

-- Begins a run: makes its globals.
local function begin(explained)
	is_explained = explained
	-- With room for one name from the beginning.
	local own = { _G = true }
	own._G = own
	header, content, others, current = nil, nil, nil, setmetatable(own, of_script)
	return own
end

-- Runs a script that does not wait. Returns its status, and the fields and the content of the older interface.
local function run(main, explained)
	runner = nil
	local status = main(begin(explained))
	return status, header, content
end

-- Runs scripts, one after the other.
local function run_all(main, explained)
	while true do
		local status = main(begin(explained))
		main, explained = yield(status, header, content)
	end
end

-- A coroutine that is not running a script, for reuse.
local idle

local function settle_run(thread, ok, first, ...)
	if not ok then
		error(first, 0)
	elseif rawequal(first, WAITS) then
		return WAITS, { thread, header, content, others, current, is_explained }, ...
	end
	idle = thread
	return first, ...
end

-- Runs a script that may wait. Returns the values of `run`; or WAITS, the state for `go_on`, and the subrequest.
local function start(main, explained)
	runner, idle = idle or create(run_all), nil
	return settle_run(runner, resume(runner, main, explained))
end

-- Continues a waiting script with the answer.
local function go_on(waiting, ...)
	runner, header, content, others, current, is_explained = unpack(waiting, 1, 6)
	return settle_run(runner, resume(runner, ...))
end

-- Drops the data of a failed run.
local function forget()
	runner, header, content, others, current = nil, nil, nil, nil, nil
end

return run, start, go_on, forget, WAITS
