// The states that a handle has shown, of which one is the current one. A reader of a
// state either holds it (a reference) or was lent it: then it stays until release().
// A state that is not current, and neither held nor lent, goes at once. Any thread; no
// mutex, so that a forked child may go on where its parent's threads stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace st::store {

// Where a state lies. Slots are used again and live as long as their Versions. So a thread
// may look at a slot whose address it has read, whatever became of the state.
struct VersionSlot {
  static constexpr uint64_t lent_bit = uint64_t{1} << 63;
  // Held so many times, being the current one among it; plus lent_bit. Not 0: the state is
  // there. The thread that makes it 0 destroys the state. Only the taker of the slot changes 0.
  std::atomic<uint64_t> uses = 0;
  std::atomic<bool> taken = false;

  virtual ~VersionSlot() = default;
  virtual void delete_value() noexcept = 0;
  void destroy() noexcept {
    delete_value();
    taken.store(false, std::memory_order_release);
  }
  void drop() noexcept {
    if (uses.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
};

// A reference to a state, of whatever kind. Must not outlive its Versions.
class HeldState {
 public:
  HeldState() = default;
  HeldState(const HeldState &other) : slot_(other.slot_) {
    if (slot_) slot_->uses.fetch_add(1, std::memory_order_relaxed);
  }
  HeldState(HeldState &&other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  HeldState &operator=(HeldState other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~HeldState() {
    if (slot_) slot_->drop();
  }
  explicit operator bool() const { return slot_; }
  // Until release(), whatever holds it.
  void lend() const {
    if (!(slot_->uses.load(std::memory_order_relaxed) & VersionSlot::lent_bit))
      slot_->uses.fetch_or(VersionSlot::lent_bit, std::memory_order_relaxed);
  }
  // Neither lent nor held by anybody else, but that it is the current one; or by so many others.
  bool alone(uint64_t others = 0) const { return slot_->uses.load(std::memory_order_acquire) == 2 + others; }

 protected:
  explicit HeldState(VersionSlot *slot) : slot_(slot) {}
  VersionSlot *slot_ = nullptr;
};

template <class T>
class Versions {
  struct Slot final : VersionSlot {
    const T *value = nullptr;
    Slot *next = nullptr;
    ~Slot() override { delete value; }
    void delete_value() noexcept override { delete std::exchange(value, nullptr); }
  };
  static constexpr uint64_t lent_bit = VersionSlot::lent_bit;

 public:
  class Held : public HeldState {
   public:
    Held() = default;
    const T &operator*() const { return *slot()->value; }
    const T *operator->() const { return slot()->value; }
    const T *get() const { return slot_ ? slot()->value : nullptr; }

   private:
    friend class Versions;
    explicit Held(Slot *slot) : HeldState(slot) {}
    Slot *slot() const { return static_cast<Slot *>(slot_); }
    void leave() { slot_ = nullptr; }
  };

  // Held once and for all, by the first that asks. Any thread.
  class Once {
   public:
    ~Once() { Held(slot_.load(std::memory_order_acquire)); }
    const T *get() const {
      const Slot *slot = slot_.load(std::memory_order_acquire);
      return slot ? slot->value : nullptr;
    }
    // Answers what is held from now on: this, or what was before.
    const T *keep(Held held) {
      Slot *none = nullptr;
      if (!slot_.compare_exchange_strong(none, held.slot(), std::memory_order_acq_rel)) return none->value;
      const T *kept = held.get();
      held.leave();
      return kept;
    }

   private:
    std::atomic<Slot *> slot_ = nullptr;
  };

  Versions() = default;
  ~Versions() {
    for (Slot *s = slots_.load(); s;) delete std::exchange(s, s->next);
  }
  Versions(const Versions &) = delete;
  Versions &operator=(const Versions &) = delete;

  // A state that may be shown, for which no more memory is needed. Until then only its holder and each() find it.
  Held place(std::unique_ptr<const T> state) {
    Slot *slot = take_slot();
    slot->value = state.release();
    slot->uses.store(1, std::memory_order_release);
    return Held(slot);
  }
  // From now on the current one, whichever was. Once a state.
  void show(const Held &placed) noexcept {
    placed.slot()->uses.fetch_add(1, std::memory_order_relaxed);
    if (Slot *before = current_.exchange(placed.slot(), std::memory_order_acq_rel)) before->drop();
  }
  // The same if `seen` is still the current one, or there is none and it is none. Else nothing happens.
  bool show_after(const Held &seen, const Held &placed) noexcept {
    placed.slot()->uses.fetch_add(1, std::memory_order_relaxed);
    Slot *before = seen.slot();
    const bool shown = current_.compare_exchange_strong(before, placed.slot(), std::memory_order_acq_rel);
    if (Slot *out = shown ? before : placed.slot()) out->drop();
    return shown;
  }
  bool is_current(const Held &held) const { return current_.load(std::memory_order_acquire) == held.slot(); }
  // The current one; none before the first.
  Held hold() const {
    for (;;) {
      Slot *slot = current_.load(std::memory_order_acquire);
      if (!slot) return Held();
      if (!hold(slot)) continue;
      Held held(slot);
      if (current_.load(std::memory_order_acquire) == slot) return held;
    }
  }
  // The current one, until release(). Once it is lent this writes nothing.
  const T &lend() const {
    for (;;) {
      Slot *slot = current_.load(std::memory_order_acquire);
      const bool lent = slot->uses.load(std::memory_order_acquire) & lent_bit;
      if (!lent && !hold(slot)) continue;
      // It is lent or held, so it stays. One that is not the current one any more does not become lent: nobody gets it.
      const Held held(lent ? nullptr : slot);
      if (current_.load(std::memory_order_acquire) != slot) continue;
      if (!lent) held.lend();
      return *slot->value;
    }
  }
  // What was lent is wanted no more. Must not race with lend().
  void release() noexcept {
    for (Slot *s = slots_.load(std::memory_order_acquire); s; s = s->next)
      if (s->uses.load(std::memory_order_relaxed) & lent_bit)
        if (s->uses.fetch_and(~lent_bit, std::memory_order_acq_rel) == lent_bit) s->destroy();
  }
  // There is no current one any more, and none is asked for.
  void close() noexcept {
    release();
    if (Slot *last = current_.exchange(nullptr, std::memory_order_acq_rel)) last->drop();
  }
  // Every state that is there, held meanwhile.
  template <class Visit>
  void each(Visit visit) const {
    for (Slot *s = slots_.load(std::memory_order_acquire); s; s = s->next)
      if (hold(s)) visit(*Held(s));
  }

 private:
  static bool hold(Slot *slot) {
    uint64_t uses = slot->uses.load(std::memory_order_relaxed);
    while (uses != 0)
      if (slot->uses.compare_exchange_weak(uses, uses + 1, std::memory_order_acquire)) return true;
    return false;
  }
  Slot *take_slot() {
    for (Slot *s = slots_.load(std::memory_order_acquire); s; s = s->next)
      if (!s->taken.exchange(true, std::memory_order_acquire)) return s;
    auto fresh = std::make_unique<Slot>();
    fresh->taken.store(true, std::memory_order_relaxed);
    fresh->next = slots_.load(std::memory_order_relaxed);
    while (!slots_.compare_exchange_weak(fresh->next, fresh.get(), std::memory_order_acq_rel)) {
    }
    return fresh.release();
  }

  std::atomic<Slot *> current_ = nullptr;
  std::atomic<Slot *> slots_ = nullptr;
};

}  // namespace st::store
