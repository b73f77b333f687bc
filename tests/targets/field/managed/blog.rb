# A service in Ruby, with the faults that such programs have.
#
# ruby blog.rb leak|ok SEED FAULT
$stdout.sync = true
LEAKS = ARGV[0] == "leak"
RANDOM = Random.new(ARGV[1].to_i)

def body
  "b" * RANDOM.rand(5000..12000)
end

class Audit
  @@entries = []

  def self.add(entry)
    @@entries << entry
    @@entries.clear unless LEAKS
  end
end

CACHE = {}
count = 0
loop do
  count += 1
  case ARGV[2]
  when "audit" then Audit.add(body)
  when "cache" then CACHE[LEAKS ? count : count % 20] = body
  else Array.new(200) { |row| "row #{row} of #{count}" }
  end
  # Between requests, as servers do.
  GC.start if count % 50 == 0
  puts "serving" if count == 150
  sleep RANDOM.rand(0.015..0.025)
end
