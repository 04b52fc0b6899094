// Inverse dynamics of an arm of seven joints (Newton and Euler's recursion): from positions, speeds and
// accelerations of the joints to their torques. Forth along the links, then back; floats, straight-line,
// with a force, a torque, a sine and a cosine of each link kept for the way back.

constexpr int JOINTS = 7;

struct Vector {
    float x, y, z;
};

// Mass, damping of the joint, centre of mass, inertia about the centre, and where the joint sits in the
// frame of the link before.
struct Link {
    float mass, damping;
    Vector centre, diagonal, products, offset;
};

__device__ __forceinline__ Vector operator+(Vector a, Vector b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
}

__device__ __forceinline__ Vector operator*(float s, Vector a) {
    return {s * a.x, s * a.y, s * a.z};
}

__device__ __forceinline__ Vector cross(Vector a, Vector b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

// Axes of neighbouring joints are at right angles, to the one side and the other in turn: a quarter turn
// about x, none at the base, and then the joint's own turn about z.
template <int J>
__device__ __forceinline__ Vector to_child(Vector a, float sine, float cosine) {
    Vector b = J == 0 ? a : J % 2 == 1 ? Vector{a.x, a.z, -a.y} : Vector{a.x, -a.z, a.y};
    return {cosine * b.x + sine * b.y, cosine * b.y - sine * b.x, b.z};
}

template <int J>
__device__ __forceinline__ Vector to_parent(Vector a, float sine, float cosine) {
    Vector b = {cosine * a.x - sine * a.y, sine * a.x + cosine * a.y, a.z};
    return J == 0 ? b : J % 2 == 1 ? Vector{b.x, -b.z, b.y} : Vector{b.x, b.z, -b.y};
}

struct Motion {
    Vector turn, turning, acceleration;
};

template <int J>
__device__ __forceinline__ void forth(Motion m,
                                      int arms,
                                      int arm,
                                      const Link* __restrict__ links,
                                      const float* __restrict__ states,
                                      Vector (&force)[JOINTS],
                                      Vector (&torque)[JOINTS],
                                      float (&sine)[JOINTS],
                                      float (&cosine)[JOINTS]) {
    if constexpr (J < JOINTS) {
        const Link& link = links[J];
        float speed = states[(size_t)(3 * J + 1) * arms + arm], push = states[(size_t)(3 * J + 2) * arms + arm];
        __sincosf(states[(size_t)(3 * J) * arms + arm], &sine[J], &cosine[J]);
        Vector at = m.acceleration + cross(m.turning, link.offset) + cross(m.turn, cross(m.turn, link.offset));
        Vector turn = to_child<J>(m.turn, sine[J], cosine[J]);
        Vector turning = to_child<J>(m.turning, sine[J], cosine[J]);
        m.turning = {turning.x + turn.y * speed, turning.y - turn.x * speed, turning.z + push};
        m.turn = {turn.x, turn.y, turn.z + speed};
        m.acceleration = to_child<J>(at, sine[J], cosine[J]);
        Vector c = link.centre, d = link.diagonal, p = link.products, w = m.turn, a = m.turning;
        force[J] = link.mass * (m.acceleration + cross(a, c) + cross(w, cross(w, c)));
        Vector spin = {d.x * w.x + p.x * w.y + p.y * w.z, p.x * w.x + d.y * w.y + p.z * w.z,
                       p.y * w.x + p.z * w.y + d.z * w.z};
        Vector change = {d.x * a.x + p.x * a.y + p.y * a.z, p.x * a.x + d.y * a.y + p.z * a.z,
                         p.y * a.x + p.z * a.y + d.z * a.z};
        torque[J] = change + cross(w, spin) + cross(c, force[J]);
        forth<J + 1>(m, arms, arm, links, states, force, torque, sine, cosine);
    }
}

template <int J>
__device__ __forceinline__ void back(int arms,
                                     int arm,
                                     const Link* __restrict__ links,
                                     const float* __restrict__ states,
                                     Vector (&force)[JOINTS],
                                     Vector (&torque)[JOINTS],
                                     const float (&sine)[JOINTS],
                                     const float (&cosine)[JOINTS],
                                     float* __restrict__ torques) {
    torques[(size_t)J * arms + arm] = torque[J].z + links[J].damping * states[(size_t)(3 * J + 1) * arms + arm];
    if constexpr (J > 0) {
        Vector pull = to_parent<J>(force[J], sine[J], cosine[J]);
        force[J - 1] = force[J - 1] + pull;
        torque[J - 1] = torque[J - 1] + to_parent<J>(torque[J], sine[J], cosine[J]) + cross(links[J].offset, pull);
        back<J - 1>(arms, arm, links, states, force, torque, sine, cosine, torques);
    }
}

// States are position, speed and acceleration of each joint; a load is a force and a torque on the tool.
extern "C" __global__ void arm_torques(int arms,
                                       float gravity,
                                       const Link* __restrict__ links,
                                       const float* __restrict__ states,
                                       const float* __restrict__ loads,
                                       float* __restrict__ torques) {
    int arm = blockIdx.x * blockDim.x + threadIdx.x;
    Vector force[JOINTS], torque[JOINTS];
    float sine[JOINTS], cosine[JOINTS];
    Motion base = {{0.f, 0.f, 0.f}, {0.f, 0.f, 0.f}, {0.f, 0.f, gravity}};
    forth<0>(base, arms, arm, links, states, force, torque, sine, cosine);
    Vector pull = {loads[arm], loads[arms + arm], loads[2 * arms + arm]};
    Vector twist = {loads[3 * arms + arm], loads[4 * arms + arm], loads[5 * arms + arm]};
    force[JOINTS - 1] = force[JOINTS - 1] + pull;
    torque[JOINTS - 1] = torque[JOINTS - 1] + twist;
    back<JOINTS - 1>(arms, arm, links, states, force, torque, sine, cosine, torques);
}
